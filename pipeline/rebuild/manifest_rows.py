"""Reads and judges manifests in Spark tasks: one row a segment, many GETs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.listing.store_calls import config_named
from pipeline.rebuild.left_out import Reason
from pipeline.rebuild.stored_manifest import NotTold, ToldSegment, told_by
from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task
from pipeline.stores.opened_store import opened
from pipeline.stores.small_objects import Read, SmallObjects
from rlm.format.manifest import MANIFEST_BYTES_MAX
from rlm.format.object_keys import ObjectSuffix, segment_keys
from rlm.reconcile.adoption_plan import StoredSegment
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig

SEGMENTS_AT_ONCE = 256
"""Manifests read and held at once; each has up to 0.1 MB where segments are large."""

TOLD_SCHEMA = (
    "store string, topic string, topic_id string, partition int, segment_id string, "
    "start_offset bigint, end_offset bigint, log_bytes bigint, event_ms bigint, "
    "is_ours boolean, row binary, reason string, why string"
)
_ARROW = pa.schema(
    [
        ("store", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("segment_id", pa.string()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("log_bytes", pa.int64()),
        ("event_ms", pa.int64()),
        ("is_ours", pa.bool_()),
        ("row", pa.binary()),
        ("reason", pa.string()),
        ("why", pa.string()),
    ]
)
SEGMENT_COLUMNS = ("store", "topic", "topic_id", "partition", "segment_id", "start_offset")


def listed_segments(objects: DataFrame) -> DataFrame:
    """The listed segments: one row each, with the lengths of its objects, null for absent ones."""
    sizes = [
        f.max(f.when(f.col("suffix") == suffix.value, f.col("size"))).alias(_size_column(suffix))
        for suffix in ObjectSuffix
    ]
    return objects.where("suffix IS NOT NULL").groupBy(*SEGMENT_COLUMNS).agg(*sizes)


def _size_column(suffix: ObjectSuffix) -> str:
    return suffix.name.lower()


def told_segments(
    segments: DataFrame, stores: Mapping[str, StoreConfig], *, tasks: int
) -> DataFrame:
    """The content of the manifests of `listed_segments`, in the columns of TOLD_SCHEMA. For a
    segment to leave out, `row` is null and `reason` says why.
    """
    spread = segments.repartition(tasks)
    return spread.mapInArrow(SentWork(_ReadManifests(dict(stores))), TOLD_SCHEMA)


@dataclass(frozen=True)
class _ReadManifests:
    """The work of a task: read and judge the manifests of some segments."""

    configs: Mapping[str, StoreConfig]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        stores: dict[str, SmallObjects] = {}
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            try:
                for batch in batches:
                    for at in range(0, batch.num_rows, SEGMENTS_AT_ONCE):
                        rows = batch.slice(at, SEGMENTS_AT_ONCE).to_pylist()
                        reading = self._told(rows, stores, stack)
                        # Not `Runner.run`, which formats the result as text, twice.
                        told = runner.get_loop().run_until_complete(reading)
                        yield pa.RecordBatch.from_pylist(told, schema=_ARROW)
            finally:
                runner.run(stack.aclose())

    async def _told(
        self,
        rows: Sequence[Mapping[str, Any]],
        stores: dict[str, SmallObjects],
        stack: AsyncExitStack,
    ) -> list[dict[str, object]]:
        told: list[dict[str, object]] = []
        for name in sorted({row["store"] for row in rows}):
            if name not in stores:
                stores[name] = await self._opened(name, stack)
            listed = [(row, stored_segment(row)) for row in rows if row["store"] == name]
            keys = [_manifest_key(self.configs[name], stored) for _, stored in listed]
            wanted = [
                key for key, (_, stored) in zip(keys, listed, strict=True) if stored.is_complete
            ]
            read = dict(zip(wanted, await stores[name].read(wanted), strict=True))
            told += (
                _row(row, stored, _judged(stored, read.get(key)))
                for key, (row, stored) in zip(keys, listed, strict=True)
            )
        return told

    async def _opened(self, name: str, stack: AsyncExitStack) -> SmallObjects:
        config = config_named(self.configs, name)
        store = await stack.enter_async_context(opened(config))
        manifests = SmallObjects(config, store, bytes_max=MANIFEST_BYTES_MAX + 1)
        return stack.enter_context(closing(manifests))


def _manifest_key(config: StoreConfig, stored: StoredSegment) -> str:
    return segment_keys(config.prefix, stored.segment_id, stored.start_offset).manifest


def _judged(stored: StoredSegment, data: Read | None) -> ToldSegment | NotTold:
    match data:
        case None:
            return _incomplete(stored)
        case NotFound():
            return NotTold(Reason.INCOMPLETE, "its manifest was deleted while the bucket was read")
        case CorruptData():
            return NotTold(Reason.DAMAGED, str(data))
    return told_by(stored, data)


def _row(
    row: Mapping[str, Any], stored: StoredSegment, found: ToldSegment | NotTold
) -> dict[str, object]:
    told = {name: row[name] for name in SEGMENT_COLUMNS}
    told["log_bytes"] = stored.sizes.get(ObjectSuffix.LOG, -1)
    if isinstance(found, ToldSegment):
        event_ms, end = found.row.event_timestamp_ms, found.row.end_offset
        custom = None if found.objects is None else found.objects.encode()
        return told | {
            "end_offset": end, "event_ms": event_ms, "is_ours": found.objects is not None,
            "row": encode_segment_row(replace(found.row, custom_metadata=custom)),
            "reason": None, "why": None,
        }  # fmt: skip
    return told | {
        "end_offset": -1, "event_ms": -1, "is_ours": False,
        "row": None, "reason": found.reason.value, "why": found.why,
    }  # fmt: skip


def stored_segment(row: Mapping[str, Any]) -> StoredSegment:
    """A row of `listed_segments` in the form of the planners."""
    partition = TopicIdPartition(row["topic"], Uuid.parse(row["topic_id"]), row["partition"])
    sizes = {
        suffix: row[_size_column(suffix)]
        for suffix in ObjectSuffix
        if row[_size_column(suffix)] is not None
    }
    id_ = RemoteLogSegmentId(partition, Uuid.parse(row["segment_id"]))
    return StoredSegment(id_, row["start_offset"], row["store"], sizes)


def _incomplete(stored: StoredSegment) -> NotTold:
    missing = " and ".join(f".{each}" for each in ObjectSuffix if each not in stored.sizes)
    if ObjectSuffix.MANIFEST not in stored.sizes:
        return NotTold(Reason.INCOMPLETE, f"without {missing}")
    return NotTold(Reason.DAMAGED, f"its manifest exists, but its {missing} is gone")
