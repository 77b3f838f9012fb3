"""The reader of a batch query: plans on the driver, reads in tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.source.batch_plan import plan_batch
from pipeline.source.options import parse_options
from pipeline.source.task_partition import TaskPartition, read_task
from pipeline.source.tier_view import TierView
from pipeline.spark.marked_pickle import Marked
from rlm.data_plane.kept_objects import kept_objects

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("strandline.source")


class BatchReader(Marked, DataSourceReader):
    """One plan, which Spark keeps for all queries of a frame: so it takes no filters, which would
    stay for the later ones. Small and picklable: every task gets a copy of it.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._options = parse_options(self._given)
        # Refused while the query is planned, before the first request to a node or a store.
        self._options.batch_start()
        self._options.batch_end()

    def partitions(self) -> list[InputPartition]:
        """One for each task; without any, Spark adds an empty one."""
        for name in self._options.ignored_in_batch():
            log.warning("%s is for streams only: ignored in a batch query", name)
        settings = self._options.read_settings()
        with kept_objects(), closing(open_catalogue(self._given)) as catalogue:
            tasks = plan_batch(TierView(catalogue, settings), self._options)
            return [TaskPartition(task, catalogue.stores, settings) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(partition)
