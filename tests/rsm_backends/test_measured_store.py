"""Each call is told once, with its bytes and how it ended."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound
from rsm_backends.measured_store import MeasuredStore, StoreCall
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo
from rsm_backends.streams import closing_stream, read_all
from tests.rsm_backends.stores import clock_ms, memory_store


class Notebook:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[StoreCall] = []

    def store_call_ended(self, call: StoreCall) -> None:
        self.calls.append(call)


def measured(inner: MemoryStore) -> tuple[MeasuredStore, Notebook]:
    notebook = Notebook()
    ticks = count()
    return MeasuredStore(inner, notebook, monotonic=lambda: float(next(ticks))), notebook


async def test_bytes_and_operations_are_counted() -> None:
    store, notebook = measured(memory_store())
    data = bytes(600_000)
    await store.put("a", data, crc32c=crc32c(data))
    assert await read_all(store, "a", start=100_000) == data[100_000:]
    upload_id = await store.start_multipart("b")
    part = await store.put_part("b", upload_id, 1, b"part", crc32c=crc32c(b"part"))
    await store.complete_multipart("b", upload_id, [part], crc32c=part.crc32c)
    await store.abort_multipart("b", upload_id)
    await store.list_uploads("b")
    await store.uploads_below("b")
    await store.list_page("")
    await store.list_folders("")
    await store.delete_many(["a"])
    await store.close()
    assert [(call.operation, call.bytes_sent, call.bytes_received) for call in notebook.calls] == [
        ("put", 600_000, 0),
        ("get", 0, 500_000),
        ("start_multipart", 0, 0),
        ("put_part", 4, 0),
        ("complete_multipart", 0, 0),
        ("abort_multipart", 0, 0),
        ("list_uploads", 0, 0),
        ("uploads_below", 0, 0),
        ("list_page", 0, 0),
        ("list_folders", 0, 0),
        ("delete_many", 0, 0),
    ]
    assert {call.error for call in notebook.calls} == {None}


async def test_an_error_is_told_by_its_kind() -> None:
    store, notebook = measured(memory_store())
    with pytest.raises(NotFound):
        await store.head("none")
    with pytest.raises(NotFound):
        await read_all(store, "none")
    assert [(call.operation, call.error) for call in notebook.calls] == [
        ("head", "not_found"),
        ("get", "not_found"),
    ]


async def test_other_errors_and_cancellation_are_told_apart() -> None:
    class Odd(MemoryStore):
        async def head(self, key: str) -> ObjectInfo:
            if key == "hang":
                await asyncio.Event().wait()
            raise ZeroDivisionError

    store, notebook = measured(Odd(clock_ms()))
    with pytest.raises(ZeroDivisionError):
        await store.head("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await store.head("hang")
    assert [call.error for call in notebook.calls] == ["internal", "cancelled"]


async def test_the_readers_own_time_is_not_the_stores() -> None:
    inner = memory_store()
    data = bytes(1024 * 1024)
    await inner.put("a", data, crc32c=crc32c(data))
    now = 0.0
    notebook = Notebook()
    store = MeasuredStore(inner, notebook, monotonic=lambda: now)
    async with closing_stream(store.get("a")) as stream:
        async for _ in stream:
            now += 10.0
    assert [call.duration_s for call in notebook.calls] == [0.0]


async def test_a_stream_left_early_is_no_error() -> None:
    inner = memory_store()
    data = bytes(1024 * 1024)
    await inner.put("a", data, crc32c=crc32c(data))
    store, notebook = measured(inner)
    async with closing_stream(store.get("a")) as stream:
        first = await anext(stream)
    (call,) = notebook.calls
    assert (call.bytes_received, call.error) == (len(first), None)
