"""Streams are closed at the end of the block, whatever kind of iterator they are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kafka_formats.crc32c import crc32c
from rsm_backends.streams import closing_stream, read_all
from tests.rsm_backends.stores import memory_store


async def test_a_generator_is_closed_also_after_an_error() -> None:
    closed = []

    async def pieces() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            yield b"two"
        finally:
            closed.append(True)

    async def read_one_and_fail() -> None:
        async with closing_stream(pieces()) as stream:
            assert await anext(stream) == b"one"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await read_one_and_fail()
    assert closed == [True]


async def test_an_iterator_without_close_is_left_alone() -> None:
    class Plain:
        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> bytes:
            raise StopAsyncIteration

    async with closing_stream(Plain()) as stream:
        assert [piece async for piece in stream] == []


async def test_a_range_is_read_in_one_piece() -> None:
    store = memory_store()
    data = bytes(range(256)) * 4096
    await store.put("a", data, crc32c=crc32c(data))
    assert await read_all(store, "a", start=5, end=900_000) == data[5:900_000]
