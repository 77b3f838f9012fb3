"""Multipart uploads that nobody ends: of segments being deleted, of orphans, and of unknown,
incomplete ones.

Stores tell of uploads by the exact key (MinIO knows no other way), so that only keys which the
metadata or the list names can be asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.opened_store import opened
from pipeline.reconcile.verdict import segment_id_of
from pipeline.worker_garbage import begin_task
from rlm.collection_plan import ObjectClass
from rlm.object_keys import ObjectSuffix, segment_keys
from rlmm.segment import SegmentState
from rsm_backends.store_config import StoreConfig

UPLOADS_SCHEMA = "name string, size bigint"
_ARROW = pa.schema([("name", pa.string()), ("size", pa.int64())])
COLUMNS = ("topic", "topic_id", "partition", "segment_id", "start_offset")


def dangling_uploads(
    known: DataFrame, judged: DataFrame, stores: Mapping[str, StoreConfig]
) -> DataFrame:
    """`name` is `store:key upload id`."""
    deleting = known.where(f.col("state") == SegmentState.DELETE_SEGMENT_STARTED.name)
    asked = deleting.select(
        f.col("topic"),
        "topic_id",
        "partition",
        "segment_id",
        f.col("known_start").alias("start_offset"),
    )
    foreign = judged.where(
        (f.col("class") == ObjectClass.FOREIGN.value) & f.col("suffix").isNotNull()
    )
    incomplete = foreign.groupBy(*COLUMNS).count().where(f.col("count") < len(ObjectSuffix))
    orphans = judged.where(
        (f.col("class") == ObjectClass.ORPHAN.value) & f.col("suffix").isNotNull()
    )
    keys = asked.unionByName(incomplete.select(*COLUMNS)).unionByName(orphans.select(*COLUMNS))
    return keys.distinct().mapInArrow(_AskForUploads(dict(stores)), UPLOADS_SCHEMA)


@dataclass(frozen=True)
class _AskForUploads:
    configs: Mapping[str, StoreConfig]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            found = asyncio.run(self._found(batch.to_pylist()))
            yield pa.RecordBatch.from_pylist(found, schema=_ARROW)

    async def _found(self, rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for name, config in self.configs.items():
            async with opened(config) as store:
                for row in rows:
                    keys = segment_keys(config.prefix, segment_id_of(row), row["start_offset"])
                    for key in keys.all():
                        found += (
                            {"name": f"{name}:{key} upload {upload}", "size": 0}
                            for upload in await store.list_uploads(key)
                        )
        return found
