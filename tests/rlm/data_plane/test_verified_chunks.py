"""Ranged reads that never give out a byte that fails its checksum."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from rlm.data_plane import verified_chunks
from rlm.data_plane.verified_chunks import VerifiedObject
from rlm.format.manifest import ChunkChecksums
from rsm_backends.memory import MemoryStore
from tests.rlm.tier import now_ms

CHUNK = 10
DATA = bytes(range(95))


def checksums(data: bytes = DATA) -> ChunkChecksums:
    parts = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    return ChunkChecksums(
        len(data), crc32c(data), tuple(crc32c(part) for part in parts), chunk_bytes=CHUNK
    )


class CountingStore(MemoryStore):
    """Notes each range, and gives the bytes in odd pieces; can lie about where they end."""

    def __init__(self, *, piece_bytes: int = 7, extra: bytes = b"") -> None:
        super().__init__(now_ms)
        self.ranges: list[tuple[int, int | None]] = []
        self._piece_bytes = piece_bytes
        self._extra = extra

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.ranges.append((start, end))
        data = b"".join([piece async for piece in super().get(key, start=start, end=end)])
        data += self._extra
        for at in range(0, len(data), self._piece_bytes):
            yield data[at : at + self._piece_bytes]


async def stored(
    data: bytes = DATA, **options: int | bytes
) -> tuple[CountingStore, VerifiedObject]:
    store = CountingStore(**options)  # type: ignore[arg-type] # the tests' own options
    await store.put("k", data, crc32c=crc32c(data))
    return store, VerifiedObject(store, "k", checksums())


async def test_every_range_is_right_however_the_store_cuts_it() -> None:
    for piece_bytes in (1, 7, 10, 64, 1000):
        _, verified = await stored(piece_bytes=piece_bytes)
        for start in range(0, 96, 3):
            for end in (start, start + 1, start + 9, start + 10, start + 33, 95, 200):
                if end >= start:
                    assert await verified.read(start, end) == DATA[start:end]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 94), st.integers(0, 7), st.integers(0, 95), st.integers(0, 95))
async def test_a_flipped_bit_is_corrupt_data_or_outside_the_chunks_read(
    at: int, bit: int, one: int, other: int
) -> None:
    damaged = bytearray(DATA)
    damaged[at] ^= 1 << bit
    _, verified = await stored(bytes(damaged))
    start, end = sorted((one, other))
    touched = start < end and start // CHUNK <= at // CHUNK <= (end - 1) // CHUNK
    if not touched:
        assert await verified.read(start, end) == DATA[start:end]
        return
    with pytest.raises(CorruptData) as caught:
        await verified.read(start, end)
    assert (caught.value.source, caught.value.position) == ("k", at // CHUNK * CHUNK)


async def test_good_chunks_before_a_bad_one_are_given() -> None:
    damaged = bytearray(DATA)
    damaged[35] ^= 1
    _, verified = await stored(bytes(damaged))
    stream = verified.stream(5, 95)
    given_out = b"".join([part for _ in range(3) for part in await anext(stream)])
    with pytest.raises(CorruptData):
        await anext(stream)
    assert given_out == DATA[5:30]


async def test_an_object_that_ends_early_is_corrupt_data_at_its_end() -> None:
    _, verified = await stored(DATA[:42])
    with pytest.raises(CorruptData, match="95 bytes are recorded") as caught:
        await verified.read(0, 95)
    assert caught.value.position == 42


async def test_more_bytes_than_asked_for_are_corrupt_data() -> None:
    _, verified = await stored(extra=b"more")
    with pytest.raises(CorruptData, match="more bytes than requested"):
        await verified.read(0, 95)


async def test_one_request_fetches_no_more_than_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified_chunks, "WINDOW_BYTES", 8 * CHUNK)
    store, verified = await stored()
    assert verified.size_bytes == 95
    assert await verified.read(0, 95) == DATA
    assert store.ranges == [(0, 80), (80, 95)]


async def test_a_small_first_window_is_followed_by_full_ones() -> None:
    store, verified = await stored()
    stream = verified.stream(12, 95, first_window_bytes=11)
    data = b"".join([part async for parts in stream for part in parts])
    assert data == DATA[12:]
    assert store.ranges == [(10, 30), (30, 95)]


async def test_an_empty_range_asks_the_store_for_nothing() -> None:
    store, verified = await stored()
    assert await verified.read(95, 95) == b""
    assert await verified.read(20, 20) == b""
    assert store.ranges == []


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (10, 9), (96, 200)])
async def test_a_range_that_is_none_is_an_invalid_request(start: int, end: int) -> None:
    _, verified = await stored()
    with pytest.raises(InvalidRequest, match="range"):
        await verified.read(start, end)


async def test_a_missing_object_is_damage() -> None:
    verified = VerifiedObject(MemoryStore(now_ms), "gone", checksums())
    assert verified.key == "gone"
    with pytest.raises(CorruptData, match="gone at byte 0: it is not in the store"):
        await verified.read(0, 1)
