"""Where a read from an offset begins: by the manifest, with proof, and without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_formats import offset_index
from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import RecordsRequest, SegmentPiece, TieredSegment
from rlm.format.manifest import CHUNK_BYTES, Manifest, parse_manifest
from rlm.format.object_keys import segment_keys
from rsm_backends.memory import MemoryStore
from rsm_backends.streams import read_all
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import STORE, Pieces, Tier, first_job, now_ms

LARGE = int(2.5 * CHUNK_BYTES)


class AskedStore(MemoryStore):
    """Notes what is read."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.asked: list[str] = []

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.asked.append(key.rpartition(".")[2])
        async for piece in super().get(key, start=start, end=end):
            yield piece


@dataclass
class Stored:
    """A segment of many chunks, one of which no batch begins in."""

    store: AskedStore
    segment: TieredSegment
    log: bytes
    batches: list[ScannedBatch]

    async def manifest(self) -> Manifest:
        return parse_manifest(await read_all(self.store, self.key), source=self.key)

    @property
    def key(self) -> str:
        return segment_keys(
            self.segment.prefix, self.segment.segment_id, self.segment.start_offset
        ).manifest

    async def with_table(self, table: bytes | None) -> TieredSegment:
        """The segment as if its manifest had been written with this table."""
        manifest = await self.manifest()
        assert manifest.checksums is not None
        checksums = replace(manifest.checksums, chunk_offset_index=table)
        data = replace(manifest, checksums=checksums).encode()
        await self.store.put(self.key, data, crc32c=crc32c(data))
        recorded = replace(
            self.segment.custom_metadata, manifest_bytes=len(data), manifest_crc32c=crc32c(data)
        )
        return replace(self.segment, custom_metadata=recorded)

    async def read(self, segment: TieredSegment, offset: int, max_bytes: int = 1) -> bytes:
        """The records from `offset` on, with nothing cached."""
        plane = DataPlane({STORE: self.store}, now_ms=now_ms)
        pieces = Pieces([SegmentPiece(segment, segment.start_offset, segment.end_offset)])
        stream = plane.read_records(RecordsRequest(offset, max_bytes), pieces)
        return b"".join([part async for part in stream])


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broker")
    replica = ReplicaWriter(write_log_dir(folder), next_offset=700)
    for number in range(40):
        replica.append(10, value_bytes=LARGE // 10 if number == 20 else CHUNK_BYTES // 100)
    replica.roll()
    return replica.log_dir


@pytest.fixture
async def stored(log_dir: Path) -> Stored:
    store = AskedStore()
    segment = await Tier(store).copy(first_job(log_dir))
    keys = segment_keys(segment.prefix, segment.segment_id, segment.start_offset)
    log = await read_all(store, keys.log)
    store.asked.clear()
    return Stored(store, segment, log, list(scan(log, source="log")))


def expected_table(batches: list[ScannedBatch]) -> list[tuple[int, int]]:
    """By the definition: of each chunk the batch that begins first in it."""
    first: dict[int, tuple[int, int]] = {}
    for batch in batches:
        first.setdefault(batch.position // CHUNK_BYTES, (batch.header.base_offset, batch.position))
    return [entry for _, entry in sorted(first.items()) if entry[1] > 0]


async def test_the_copy_writes_down_the_first_batch_of_each_chunk(stored: Stored) -> None:
    table = expected_table(stored.batches)
    chunks = -(-len(stored.log) // CHUNK_BYTES)
    assert 3 <= len(table) < chunks - 1, "one chunk has none"
    manifest = await stored.manifest()
    assert manifest.checksums is not None
    written = manifest.checksums.chunk_offset_index
    assert written == offset_index.encode(table, stored.segment.start_offset)


async def test_every_offset_is_found_with_the_table_without_indexes(stored: Stored) -> None:
    for batch in stored.batches:
        for offset in (batch.header.base_offset, batch.header.last_offset):
            assert await stored.read(stored.segment, offset) == bytes(batch.data)
    assert set(stored.store.asked) == {"rsm-manifest", "log"}


async def test_a_manifest_without_the_table_is_read_by_the_offset_index(stored: Stored) -> None:
    older = await stored.with_table(None)
    assert b"chunkOffsetIndex" not in await read_all(stored.store, stored.key)
    for batch in stored.batches:
        for offset in (batch.header.base_offset, batch.header.last_offset):
            assert await stored.read(older, offset) == bytes(batch.data)
    assert "indexes" in stored.store.asked


async def test_a_table_that_lies_is_refused_and_never_gives_other_records(stored: Stored) -> None:
    """Whatever batch, or place inside one, an entry names: right records or CorruptData."""
    segment, batches = stored.segment, stored.batches
    starts = {batch.position for batch in batches}
    wanted = batches[25]
    refused = 0
    for place in sorted(starts | {batch.position + 61 for batch in batches}):
        if place == 0:
            continue
        table = offset_index.encode([(wanted.header.base_offset, place)], segment.start_offset)
        lying = await stored.with_table(table)
        try:
            found = await stored.read(lying, wanted.header.last_offset)
        except CorruptData:
            assert place > wanted.position or place not in starts
            refused += 1
        else:
            assert found == bytes(wanted.data)
            assert place in starts
    assert refused == len(batches) + len(batches[26:]), "inside any, and at any behind"


@pytest.mark.parametrize(
    "numbers",
    [
        [(5, 9), (5, 10)],
        [(5, 9), (4, 10)],
        [(5, 9), (6, 9)],
        [(5, 9), (6, 8)],
        [(0, 9)],
        [(5, 0)],
        [(5, 2**31 - 1)],
        [(number + 1, number + 1) for number in range(100)],
    ],
)
async def test_a_table_that_no_writer_makes_is_corrupt_data(
    stored: Stored, numbers: list[tuple[int, int]]
) -> None:
    await stored.with_table(offset_index.encode(numbers, 0))
    with pytest.raises(CorruptData, match="chunkOffsetIndex"):
        await stored.manifest()


async def test_a_table_of_half_an_entry_is_corrupt_data(stored: Stored) -> None:
    await stored.with_table(bytes(7))
    with pytest.raises(CorruptData, match="chunkOffsetIndex"):
        await stored.manifest()
