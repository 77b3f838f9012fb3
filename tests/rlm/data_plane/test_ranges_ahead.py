"""Logs taken in ranges, as a broker takes them: the same bytes, each asked of the store once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from rlm.data_plane.read_request import LogRequest, TieredSegment
from rlm.format.object_keys import segment_keys
from rsm_backends.memory import MemoryStore
from rsm_backends.streams import read_all
from tests.rlm.broker_files import ReplicaWriter, write_log_dir
from tests.rlm.tier import PREFIX, Tier, copy_job, only_partition

MIB = 1 << 20
RANGE_BYTES = 300_000
BACK_BYTES = 40_000
SETTLED = 300


@pytest.fixture(name="asked")
def asked_(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int | None]]:
    """Requests to the store."""
    asked: list[tuple[str, int, int | None]] = []
    get = MemoryStore.get

    def noted(
        store: MemoryStore, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        asked.append((key, start, end))
        return get(store, key, start=start, end=end)

    monkeypatch.setattr(MemoryStore, "get", noted)
    return asked


async def tier_of(tmp_path: Path, segments: int = 2) -> tuple[Tier, list[TieredSegment]]:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    for _ in range(segments):
        for _ in range(30):
            replica.append(10, value_bytes=10_000)
        replica.roll()
    tier = Tier(chunk_cache_bytes_max=16 * MIB)
    partition = only_partition(tmp_path)
    found = [await tier.copy(copy_job(partition, each)) for each in partition.segments[:-1]]
    return tier, found


async def taken(tier: Tier, request: LogRequest) -> bytes:
    data = b"".join([part async for part in tier.plane.read_log(request)])
    for _ in range(SETTLED):
        await asyncio.sleep(0)
    return data


async def in_ranges(
    tier: Tier, segment: TieredSegment, following: TieredSegment | None = None
) -> bytes:
    """The whole log, in ranges that each begin a little before the end of the one before."""
    size, whole = segment.custom_metadata.log_bytes, b""
    while len(whole) < size:
        start = max(0, len(whole) - BACK_BYTES)
        data = await taken(tier, LogRequest(segment, start, start + RANGE_BYTES, following))
        whole = whole[:start] + data
    return whole


def key_of(segment: TieredSegment) -> str:
    return segment_keys(PREFIX, segment.segment_id, segment.start_offset).log


async def whole(tier: Tier, segment: TieredSegment) -> bytes:
    return await read_all(tier.store, key_of(segment))


async def test_no_byte_is_asked_for_twice_and_the_next_segment_is_there_at_once(
    tmp_path: Path, asked: list[tuple[str, int, int | None]]
) -> None:
    tier, (first, second) = await tier_of(tmp_path)
    logs = [await whole(tier, each) for each in (first, second)]
    asked.clear()
    assert await in_ranges(tier, first, second) == logs[0]
    logs_asked = [each for each in asked if each[0].endswith(".log")]
    ahead = [each for each in logs_asked if str(second.segment_id.id) in each[0]]
    assert ahead, "its first bytes were fetched while the one before ended"
    assert await in_ranges(tier, second) == logs[1]
    logs_asked = [each for each in asked if each[0].endswith(".log")]
    assert sum((end or 0) - start for _, start, end in logs_asked) == sum(map(len, logs))
    assert len(logs_asked) < len(logs[0]) / (RANGE_BYTES - BACK_BYTES), "fewer than ranges"
    counts = tier.plane.chunk_counts
    assert counts.ahead_used_bytes > sum(map(len, logs)) / 2
    assert counts.ahead_wasted_bytes == 0
    await tier.plane.close()


async def test_a_reader_that_leaves_within_a_range_gets_nothing_ahead(
    tmp_path: Path, asked: list[tuple[str, int, int | None]]
) -> None:
    tier, (first, _) = await tier_of(tmp_path)
    await taken(tier, LogRequest(first, 0, RANGE_BYTES))
    asked.clear()
    stream = tier.plane.read_log(LogRequest(first, RANGE_BYTES - 1, 2 * RANGE_BYTES))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # a generator
    for _ in range(SETTLED):
        await asyncio.sleep(0)
    assert all((end or 0) < 3 * RANGE_BYTES for _, _, end in asked)


async def test_what_goes_wrong_ahead_is_told_to_the_reader_at_its_turn(tmp_path: Path) -> None:
    tier, (first, _) = await tier_of(tmp_path)
    log = await whole(tier, first)
    assert await taken(tier, LogRequest(first, 0, RANGE_BYTES)) == log[:RANGE_BYTES]
    damaged = bytearray(log)
    damaged[1_100_000] ^= 1
    key = key_of(first)
    await tier.store.delete_many([key])
    await tier.store.put(key, bytes(damaged), crc32c=crc32c(damaged))
    for start in range(RANGE_BYTES - 1, 900_000 - RANGE_BYTES, RANGE_BYTES - 1):
        data = await taken(tier, LogRequest(first, start, start + RANGE_BYTES))
        assert data == log[start : start + RANGE_BYTES]
    with pytest.raises(CorruptData):
        await taken(tier, LogRequest(first, 890_000, 1_190_000))
