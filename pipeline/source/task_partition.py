"""The input of a Spark task of the data source, and its work."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.source.plan import Task
from pipeline.spark.marked_pickle import Marked
from pipeline.spark.worker_garbage import begin_task
from rsm_backends.store_config import StoreConfig

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("strandline.source")


class TaskPartition(Marked, InputPartition):
    """Everything a task needs: it opens no catalogue. Never shows its stores' credentials."""

    def __init__(
        self, slices: Task, stores: Mapping[str, StoreConfig], settings: ReadSettings
    ) -> None:
        self.slices = slices
        # Later segments, perhaps of a different store, show which transactions were aborted.
        needed = {one.store for part in slices for one in (part.segment, *part.later)}
        self.stores = {name: config for name, config in stores.items() if name in needed}
        self.settings = settings


def read_task(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a task; none for the empty partition that Spark adds to an empty query."""
    if not isinstance(partition, TaskPartition):
        return iter(())
    begin_task()
    return read_slices(partition.slices, partition.stores, partition.settings, on_lost=_lost)


def _lost(part: SegmentSlice, from_offset: int) -> None:
    log.warning(
        "offsets %d to %d of %s-%d are gone: segment %s was deleted after the query was planned",
        from_offset,
        part.last_offset,
        part.segment.partition.topic,
        part.segment.partition.partition,
        part.segment.segment_id.id,
    )
