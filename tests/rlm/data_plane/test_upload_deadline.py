"""No byte of an upload is sent at or after its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound, RetryLater
from rlm.data_plane.upload_deadline import DeadlineStore
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo, ObjectStore
from rsm_backends.streams import read_all

DATA = b"some bytes"
CRC = crc32c(DATA)


class Clock:
    """Wall clock milliseconds, set by hand."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inner(clock: Clock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def store(inner: MemoryStore, clock: Clock) -> DeadlineStore:
    return DeadlineStore(inner, 2_000_000, clock)


async def test_before_the_deadline_everything_passes(store: DeadlineStore) -> None:
    as_port: ObjectStore = store
    await as_port.put("a", DATA, crc32c=CRC)
    upload = await as_port.start_multipart("b")
    assert await as_port.list_uploads("b") == (upload,)
    part = await as_port.put_part("b", upload, 1, DATA, crc32c=CRC)
    await as_port.complete_multipart("b", upload, [part], crc32c=CRC)
    assert await read_all(as_port, "b") == DATA
    assert (await as_port.head("a")).size == len(DATA)
    assert len((await as_port.list_page("")).objects) == 2
    await as_port.delete_many(["a"])
    with pytest.raises(NotFound):
        await as_port.head("a")
    await as_port.close()


Send = Callable[[DeadlineStore, str], Awaitable[object]]
SENDS: list[Send] = [
    lambda store, upload: store.put("a", DATA, crc32c=CRC),
    lambda store, upload: store.start_multipart("a"),
    lambda store, upload: store.put_part("b", upload, 1, DATA, crc32c=CRC),
    lambda store, upload: store.complete_multipart("b", upload, [], crc32c=0),
]


@pytest.mark.parametrize("send", SENDS)
async def test_at_the_deadline_nothing_is_sent(
    store: DeadlineStore, inner: MemoryStore, clock: Clock, send: Send
) -> None:
    upload = await inner.start_multipart("b")
    clock.ms = 2_000_000
    with pytest.raises(RetryLater, match="deadline"):
        await send(store, upload)
    assert (await inner.list_page("")).objects == ()
    await store.abort_multipart("b", upload)
    assert await inner.list_uploads("b") == ()


class HangingStore(MemoryStore):
    """Takes a put and never answers."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.cancelled = False

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError("unreachable")


async def test_what_hangs_is_cancelled_at_the_deadline() -> None:
    inner = HangingStore()
    store = DeadlineStore(inner, 1_001, Clock())
    with pytest.raises(RetryLater, match="new segment id"):
        await store.put("a", DATA, crc32c=CRC)
    assert inner.cancelled
