"""The reader of a batch query: plans on the driver, reads in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.source.batch_plan import plan_batch
from pipeline.source.filters import NOTHING_PRUNED, prune
from pipeline.source.options import parse_options
from pipeline.source.task_partition import TaskPartition, read_task
from pipeline.source.tier_view import TierView
from rlm.data_plane.kept_objects import kept_objects

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("strandline.source")


class BatchReader(DataSourceReader):
    """One query. Small and picklable: every task gets a copy of it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._options = parse_options(self._given)
        # Refused while the query is planned, before anything is asked of a node or a store.
        self._options.batch_start()
        self._options.batch_end()
        self._pruning = NOTHING_PRUNED

    def partitions(self) -> list[InputPartition]:
        """One for each task; without any, Spark adds an empty one."""
        for name in self._options.ignored_in_batch():
            log.warning("%s is for streams only: ignored in a batch query", name)
        settings = self._options.read_settings()
        with kept_objects(), closing(open_catalogue(self._given)) as catalogue:
            tasks = plan_batch(TierView(catalogue, settings), self._options, self._pruning)
            return [TaskPartition(task, catalogue.stores, settings) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(partition)


class PruningBatchReader(BatchReader):
    """Leaves out partitions and segments without a record that passes Spark's filters.

    A separate class: Spark fails a query whose reader takes filters while
    spark.sql.python.filterPushdown.enabled is off, its default, and a reader can't see the setting.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Returns all filters, so that Spark applies them to every record."""
        self._pruning = prune(filters)
        return filters
