"""Segments of which a store tells only by an upload below its prefix."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_formats.errors import Refused
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.reconcile.uploads import COLUMNS, UPLOAD, AskForUploads, begun_segments
from pipeline.stores.opened_store import opened
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.store_config import StoreConfig

PARTITION = TopicIdPartition("orders", Uuid(b"t" * 16), 3)
SEGMENT = RemoteLogSegmentId(PARTITION, Uuid(b"s" * 16))
KEYS = segment_keys("", SEGMENT, 70)
BEGUN = ("orders", str(PARTITION.topic_id), 3, str(SEGMENT.id), 70)


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, StoreConfig]:
    """Two uploads of one segment, and those of others."""
    config = StoreConfig(name="main", kind="filesystem", path=tmp_path)

    async def start() -> None:
        async with opened(config) as store:
            for key in (KEYS.log, KEYS.indexes, "_strandline/snapshots/1", "theirs.bin"):
                await store.start_multipart(key)

    asyncio.run(start())
    return {"main": config}


def test_uploads_of_a_segment_are_told_once_and_those_of_others_not(
    stores: dict[str, StoreConfig],
) -> None:
    assert begun_segments(stores) == [BEGUN]
    asked = pa.RecordBatch.from_pylist([dict(zip(COLUMNS, BEGUN, strict=True))])
    rows = pa.Table.from_batches(AskForUploads(stores)(iter([asked]))).to_pylist()
    assert [(row["key"], row["class"], row["size"]) for row in rows] == [
        (KEYS.indexes, UPLOAD, 0), (KEYS.log, UPLOAD, 0),
    ]  # fmt: skip
    assert rows[0]["name"].startswith(f"main:{KEYS.indexes} upload ")


def test_a_store_that_does_not_let_us_ask_tells_of_none(
    stores: dict[str, StoreConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: FilesystemStore, prefix: str) -> None:
        raise Refused("s3:ListBucketMultipartUploads is denied")

    monkeypatch.setattr(FilesystemStore, "uploads_below", refuse)
    assert begun_segments(stores) == []
