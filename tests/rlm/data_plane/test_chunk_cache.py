"""Chunks kept in memory: the same bytes as without, within the bound, fetched once by many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.chunk_cache import ChunkCache, ChunkKey
from rlm.data_plane.verified_chunks import VerifiedObject
from rlm.format.manifest import ChunkChecksums
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.memory import MemoryStore
from tests.rlm.tier import now_ms

CHUNK = 10
SIZE = 95
PARTITION = TopicIdPartition("orders", Uuid(b"orders-topic-id!"), 0)


def segment_id(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16)))


def key(chunk: int, segment: int = 0) -> ChunkKey:
    return (segment_id(segment), 7, chunk)


def log_of(number: int) -> bytes:
    return random.Random(number).randbytes(SIZE)


class Store(MemoryStore):
    """Counts requests, gives small pieces, and lets others run before each of them."""

    def __init__(self) -> None:
        super().__init__(now_ms)
        self.ranges: list[tuple[str, int, int | None]] = []

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.ranges.append((key, start, end))
        data = b"".join([piece async for piece in super().get(key, start=start, end=end)])
        for at in range(0, len(data), 4):
            await asyncio.sleep(0)
            yield data[at : at + 4]


async def store_of(segments: int) -> Store:
    store = Store()
    for number in range(segments):
        await store.put(str(number), log_of(number), crc32c=crc32c(log_of(number)))
    return store


def log(store: MemoryStore, number: int, cache: ChunkCache | None) -> VerifiedObject:
    data = log_of(number)
    chunks = tuple(crc32c(data[at : at + CHUNK]) for at in range(0, SIZE, CHUNK))
    checksums = ChunkChecksums(SIZE, crc32c(data), chunks, chunk_bytes=CHUNK)
    return VerifiedObject(store, str(number), checksums, cache=cache, segment_id=segment_id(number))


async def test_a_second_read_asks_the_store_for_nothing() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    for _ in range(2):
        assert await log(store, 0, cache).read(3, 88) == log_of(0)[3:88]
    assert store.ranges == [("0", 0, 90)]
    assert (cache.counts.misses, cache.counts.hits) == (1, 9)


async def test_only_what_is_missing_between_kept_chunks_is_fetched() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    await log(store, 0, cache).read(20, 30)
    await log(store, 0, cache).read(60, 70)
    store.ranges.clear()
    assert await log(store, 0, cache).read(0, SIZE) == log_of(0)
    assert store.ranges == [("0", 0, 20), ("0", 30, 60), ("0", 70, 95)]


async def test_readers_who_miss_at_once_share_one_request() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    found = await asyncio.gather(*(log(store, 0, cache).read(0, CHUNK) for _ in range(20)))
    assert found == [log_of(0)[:CHUNK]] * 20
    assert store.ranges == [("0", 0, 10)]
    assert (cache.counts.misses, cache.counts.shared) == (1, 19)


async def test_whoever_waits_for_a_reader_that_goes_away_fetches_it_alone() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    first = asyncio.create_task(log(store, 0, cache).read(0, SIZE))
    second = asyncio.create_task(log(store, 0, cache).read(0, SIZE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    assert await second == log_of(0)
    assert store.ranges == [("0", 0, 95), ("0", 0, 95)]


async def test_a_reader_that_takes_its_time_holds_nobody_up() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    slow = log(store, 0, cache).stream(0, SIZE)
    await anext(slow)
    async with asyncio.timeout(10):
        assert await log(store, 0, cache).read(0, SIZE) == log_of(0)
    await slow.aclose()  # type: ignore[attr-defined]  # a generator
    assert not cache._flights


async def test_a_damaged_chunk_is_told_to_each_reader_and_never_kept() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    damaged = bytearray(log_of(0))
    damaged[25] ^= 1
    await store.delete_many(["0"])
    await store.put("0", bytes(damaged), crc32c=crc32c(damaged))
    reads = (log(store, 0, cache).read(0, SIZE) for _ in range(3))
    for error in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(error, CorruptData)
        assert error.position == 20
    held = [cache.holds((segment_id(0), crc32c(log_of(0)), chunk)) for chunk in range(4)]
    assert held == [True, True, False, False]


async def test_an_object_deleted_behind_our_back_is_told_for_what_is_not_kept() -> None:
    store, cache = await store_of(1), ChunkCache(1_000)
    await log(store, 0, cache).read(0, 30)
    await store.delete_many(["0"])
    assert await log(store, 0, cache).read(5, 30) == log_of(0)[5:30]
    with pytest.raises(CorruptData, match="is not in the store"):
        await log(store, 0, cache).read(5, 31)


def test_one_scan_leaves_what_was_read_again() -> None:
    cache = ChunkCache(100)

    async def fill() -> None:
        for chunk in (0, 1, 0, 1):
            if await cache.find(key(chunk)) is None:
                assert cache.begin(key(chunk))
                cache.land(key(chunk), bytes(CHUNK))
        for chunk in range(100):
            assert cache.begin(key(chunk, segment=1))
            cache.land(key(chunk, segment=1), bytes(CHUNK))

    asyncio.run(fill())
    assert cache.holds(key(0))
    assert cache.holds(key(1))
    assert cache.bytes_held == 100


async def test_chunks_fetched_ahead_are_found_by_their_reader_and_asked_for_once() -> None:
    store, cache = await store_of(1), ChunkCache(1_000, 500)
    stored = log(store, 0, cache)
    await asyncio.gather(
        stored.fetch_ahead(20, 50), stored.fetch_ahead(30, 60), stored.read(25, 45)
    )
    assert store.ranges == [("0", 20, 50), ("0", 50, 60)]
    assert await stored.read(20, 60) == log_of(0)[20:60]
    assert len(store.ranges) == 2
    assert (cache.counts.misses, cache.counts.shared, cache.counts.hits) == (0, 3, 4)
    assert (cache.counts.ahead_used_bytes, cache.counts.ahead_wasted_bytes) == (40, 0)


async def test_of_chunks_fetched_ahead_the_oldest_make_room_and_count_as_wasted() -> None:
    store, cache = await store_of(2), ChunkCache(60, 40)
    await log(store, 0, cache).read(0, 20)
    await log(store, 0, cache).read(0, 20)
    await log(store, 0, cache).fetch_ahead(20, 40)
    await log(store, 1, cache).fetch_ahead(0, 40)
    assert (cache.counts.ahead_used_bytes, cache.counts.ahead_wasted_bytes) == (0, 20)
    chunks = [(*log(store, 0, cache)._chunk_key(each)[:2], each) for each in range(4)]
    assert [cache.holds(each) for each in chunks] == [True, True, False, False]


async def test_whoever_waits_for_chunks_that_do_not_come_ahead_fetches_them_alone() -> None:
    store, cache = await store_of(1), ChunkCache(1_000, 500)
    ahead = asyncio.create_task(log(store, 0, cache).fetch_ahead(0, SIZE))
    await asyncio.sleep(0)
    reading = asyncio.create_task(log(store, 0, cache).read(30, 60))
    await asyncio.sleep(0)
    ahead.cancel()
    assert await reading == log_of(0)[30:60]
    assert not cache._flights


def test_a_reader_that_asks_again_for_what_it_read_keeps_it_no_longer() -> None:
    async def held_after(*, read_before: int) -> bool:
        store, cache = await store_of(1), ChunkCache(50)
        stored = log(store, 0, cache)
        await stored.read(0, 20)
        stream = stored.stream(10, 20, read_before=read_before)
        assert b"".join([part async for parts in stream for part in parts]) == log_of(0)[10:20]
        await stored.read(20, 80)
        return cache.holds(stored._chunk_key(1))

    assert asyncio.run(held_after(read_before=0))
    assert not asyncio.run(held_after(read_before=20))


async def test_without_a_bound_nothing_is_kept() -> None:
    store, cache = await store_of(1), ChunkCache(0)
    for _ in range(2):
        assert await log(store, 0, cache).read(0, SIZE) == log_of(0)
    assert len(store.ranges) == 2
    assert cache.bytes_held == 0


AHEAD = 9
Step = tuple[int, int, int, int]
"""Number of a log, two borders of a range, and how many chunks are taken of it: `AHEAD` are fetched
ahead and not taken.
"""
steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, SIZE), st.integers(0, SIZE), st.integers(0, AHEAD)),
    max_size=30,
)


async def read_some(stored: VerifiedObject, start: int, end: int, chunks_max: int) -> bytes:
    """What comes until so many chunks were taken; the stream is then left."""
    taken = b""
    stream = stored.stream(start, end)
    try:
        async for parts in stream:
            taken += b"".join(parts)
            chunks_max -= 1
            if chunks_max == 0:
                break
    finally:
        await stream.aclose()  # type: ignore[attr-defined]  # a generator
    return taken


async def check(cache: ChunkCache, reads: list[Step], deleted: int | None) -> None:
    """Reads side by side, some left early, some ahead: the bytes are right, or the object is told
    missing.
    """
    store = await store_of(4)

    async def one(step: Step) -> None:
        number, one, other, chunks_max = step
        start, end = sorted((one, other))
        try:
            if chunks_max == AHEAD:
                await log(store, number, cache).fetch_ahead(start, end)
                return
            found = await read_some(log(store, number, cache), start, end, chunks_max)
        except CorruptData:
            assert number == deleted
            return
        whole = log_of(number)[start:end]
        assert found == whole[: len(found)]
        assert found == whole or chunks_max > 0

    async def delete() -> None:
        await asyncio.sleep(0)
        if deleted is not None:
            await store.delete_many([str(deleted)])

    await asyncio.gather(*map(one, reads), delete())
    assert cache.bytes_held <= 70
    held = [*cache._once.values(), *cache._again.values(), *cache._ahead.values()]
    assert cache.bytes_held == sum(map(len, held))
    assert cache._ahead_bytes == sum(map(len, cache._ahead.values())) <= cache._ahead_bytes_max
    assert cache._again_bytes == sum(map(len, cache._again.values()))
    assert not cache._flights


@settings(max_examples=150, deadline=None)
@given(steps, st.none() | st.integers(0, 3))
async def test_reads_through_a_small_cache_are_the_reads_without(
    reads: list[Step], deleted: int | None
) -> None:
    await check(ChunkCache(70, 30), reads, deleted)


class ForgetsTheSegment(ChunkCache):
    """The planted bug: chunks are told apart by their number alone."""

    async def find(self, key: ChunkKey, *, again: bool = True) -> bytes | None:
        return await super().find((segment_id(0), 0, key[2]), again=again)

    def holds(self, key: ChunkKey) -> bool:
        return super().holds((segment_id(0), 0, key[2]))

    def expects(self, key: ChunkKey) -> bool:
        return super().expects((segment_id(0), 0, key[2]))

    def begin(self, key: ChunkKey) -> bool:
        return super().begin((segment_id(0), 0, key[2]))

    def land(self, key: ChunkKey, data: bytes, *, ahead: bool = False) -> None:
        super().land((segment_id(0), 0, key[2]), data, ahead=ahead)

    def give_up(self, key: ChunkKey) -> None:
        super().give_up((segment_id(0), 0, key[2]))


class LeavesFlightsOpen(ChunkCache):
    """The planted bug: who leaves tells nobody."""

    def give_up(self, key: ChunkKey) -> None:
        pass


@pytest.mark.parametrize("planted", [ForgetsTheSegment, LeavesFlightsOpen])
async def test_planted_bugs_are_found(planted: type[ChunkCache]) -> None:
    """By the check above, on reads drawn from one seed."""
    chance = random.Random(5)
    reads = [
        (chance.randrange(4), chance.randrange(SIZE), chance.randrange(SIZE), chance.randrange(10))
        for _ in range(30)
    ]
    with pytest.raises((AssertionError, TimeoutError)):
        async with asyncio.timeout(1):
            await check(planted(70, 30), reads, 2)
