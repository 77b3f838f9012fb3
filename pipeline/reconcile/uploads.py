"""Finds multipart uploads that no node will end: of segments being deleted, of orphans, and of
unknown, incomplete segments.

Every store lists uploads of an exact key. Most also list those below a prefix, which finds segments
with neither a row nor an object; MinIO does not, so there only keys from the metadata or the list
of objects can be checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.listing.listed_objects import object_rows
from pipeline.reconcile.judged_objects import ID, JUDGED_SCHEMA, incomplete_segments
from pipeline.reconcile.verdict import segment_id_of
from pipeline.spark.marked_pickle import SentWork
from pipeline.spark.worker_garbage import begin_task
from pipeline.stores.many_calls import many_calls
from pipeline.stores.opened_store import opened, told_uploads
from rlm.format.object_keys import parse_segment_key, segment_keys
from rlm.reconcile.collection_plan import ObjectClass
from rlmm.segment import SegmentState
from rsm_backends.store import ObjectInfo
from rsm_backends.store_config import StoreConfig

UPLOAD = "upload"
"""The class of an upload in the table of verdicts."""
COLUMNS = ("topic", "topic_id", "partition", "segment_id", "start_offset")
_BEGUN_SCHEMA = (
    "topic string, topic_id string, partition int, segment_id string, start_offset bigint"
)
SEGMENTS_BEGUN_MAX = 100_000
"""Segments taken from uploads below a prefix; more in one bucket are left to the next run."""

Begun = tuple[str, str, int, str, int]
"""A segment with an upload; see COLUMNS."""


def begun_segments(stores: Mapping[str, StoreConfig]) -> list[Begun]:
    """The segments of all uploads that the stores list. Call it before reading the metadata: a copy
    has its row before its first upload.
    """
    return asyncio.run(_begun(stores))[:SEGMENTS_BEGUN_MAX]


async def _begun(stores: Mapping[str, StoreConfig]) -> list[Begun]:
    found: set[Begun] = set()
    for config in stores.values():
        async with opened(config) as store:
            uploads = await told_uploads(store, config.prefix)
        for each in uploads:
            parsed = parse_segment_key(config.prefix, each.key)
            if parsed is not None:
                partition = parsed.segment_id.partition
                found.add(
                    (
                        partition.topic,
                        str(partition.topic_id),
                        partition.partition,
                        str(parsed.segment_id.id),
                        parsed.start_offset,
                    )
                )
    return sorted(found)


def dangling_uploads(
    known: DataFrame, judged: DataFrame, stores: Mapping[str, StoreConfig], begun: Sequence[Begun]
) -> DataFrame:
    """The dangling uploads that exist now, in the columns of JUDGED_SCHEMA: class UPLOAD, 0 bytes,
    `name` is `store:key upload id`. `begun` must have been read before `known`.
    """
    deleting = known.where(f.col("state") == SegmentState.DELETE_SEGMENT_STARTED.name)
    asked = deleting.select(
        f.col("topic"),
        "topic_id",
        "partition",
        "segment_id",
        f.col("known_start").alias("start_offset"),
    )
    orphans = judged.where(
        (f.col("class") == ObjectClass.ORPHAN.value) & f.col("suffix").isNotNull()
    )
    keys = asked.unionByName(incomplete_segments(judged).select(*COLUMNS)).unionByName(
        orphans.select(*COLUMNS)
    )
    if begun:
        rows = judged.sparkSession.createDataFrame(list(begun), _BEGUN_SCHEMA)
        copying = known.where(f.col("state") == SegmentState.COPY_SEGMENT_STARTED.name)
        keys = keys.unionByName(rows.join(copying, ID, "left_anti").select(*COLUMNS))
    return keys.distinct().mapInArrow(SentWork(AskForUploads(dict(stores))), JUDGED_SCHEMA)


@dataclass(frozen=True)
class AskForUploads:
    """The work of a task: ask each store for the uploads of segments, by their keys."""

    configs: Mapping[str, StoreConfig]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            yield from asyncio.run(self._found(batch.to_pylist()))

    async def _found(self, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        for config in self.configs.values():
            keys = [
                key
                for row in rows
                for key in segment_keys(
                    config.prefix, segment_id_of(row), row["start_offset"]
                ).all()
            ]
            async with opened(config) as store:
                told = await many_calls(store.list_uploads, keys)
            found += [
                _rows(config, key, uploads)
                for key, uploads in zip(keys, told, strict=True)
                if uploads
            ]
        return found


def _rows(config: StoreConfig, key: str, uploads: Sequence[str]) -> pa.RecordBatch:
    listed = object_rows(config, [ObjectInfo(key, 0, None, None, "")] * len(uploads))
    names = [f"{config.name}:{key} upload {upload}" for upload in uploads]
    added = {
        "state": pa.nulls(len(uploads), pa.string()),
        "class": pa.array([UPLOAD] * len(uploads)),
        "name": pa.array(names),
    }
    return pa.RecordBatch.from_arrays(
        [*listed.columns, *added.values()], names=[*listed.schema.names, *added]
    )
