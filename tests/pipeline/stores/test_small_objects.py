"""Many small objects read whole, in the order of their keys, from files and by requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event, Lock

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, NotFound, RetryLater
from pipeline.stores import small_objects
from pipeline.stores.many_calls import CALLS_AT_ONCE
from pipeline.stores.opened_store import opened
from pipeline.stores.small_objects import (
    BUFFER_BYTES,
    FILE_READERS,
    FILES_A_RUN,
    SmallObjects,
    _Files,
)
from rsm_backends.memory import MemoryStore
from rsm_backends.store_config import StoreConfig

BYTES_MAX = 2 * BUFFER_BYTES
Put = Callable[[str, bytes], Awaitable[object]]


class Remote(MemoryStore):
    """Counts how many requests are under way, and fails as it is told."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.under_way = self.most = 0
        self.fails: dict[str, Exception] = {}

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0)
            if key in self.fails:
                raise self.fails[key]
            async for piece in super().get(key, start=start, end=end):
                yield piece
        finally:
            self.under_way -= 1


@pytest.fixture
def remote() -> Remote:
    return Remote()


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[SmallObjects]:
    config = StoreConfig(name="main", kind="filesystem", path=tmp_path)
    async with opened(config) as store:
        with closing(SmallObjects(config, store, bytes_max=BYTES_MAX)) as found:
            yield found


@pytest.fixture(params=["files", "requests"])
async def objects(
    request: pytest.FixtureRequest, tmp_path: Path, remote: Remote, files: SmallObjects
) -> tuple[SmallObjects, Put]:
    """Those of a store, and how to put one there."""
    if request.param == "files":

        async def write(key: str, data: bytes) -> None:
            (tmp_path / key).write_bytes(data)

        return files, write
    config = StoreConfig(name="main", kind="memory")
    read = SmallObjects(config, remote, bytes_max=BYTES_MAX)
    return read, lambda key, data: remote.put(key, data, crc32c=crc32c(data))


def keys(count: int) -> Sequence[str]:
    return [f"{number}" for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, FILE_READERS + 1, FILE_READERS * FILES_A_RUN + 1])
async def test_each_is_read_whole_and_in_order(
    objects: tuple[SmallObjects, Put], count: int
) -> None:
    read, put = objects
    for key in keys(count):
        await put(key, key.encode())
    assert await read.read(keys(count)) == [key.encode() for key in keys(count)]


@pytest.mark.parametrize(
    "size", [0, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, BYTES_MAX, BYTES_MAX + 1]
)
async def test_a_longer_one_is_read_up_to_the_bound(
    objects: tuple[SmallObjects, Put], size: int
) -> None:
    read, put = objects
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    await put("long", data)
    await put("short", b"short")
    assert await read.read(["long", "short"]) == [data[:BYTES_MAX], b"short"]


async def test_one_that_is_gone_is_told_and_the_others_are_read(
    objects: tuple[SmallObjects, Put],
) -> None:
    read, put = objects
    await put("there", b"data")
    gone, there = await read.read(["gone", "there"])
    assert isinstance(gone, NotFound)
    assert there == b"data"


async def test_requests_are_bounded_and_end_with_the_first_that_fails(remote: Remote) -> None:
    read = SmallObjects(StoreConfig(name="main", kind="memory"), remote, bytes_max=BYTES_MAX)
    for key in keys(3 * CALLS_AT_ONCE):
        await remote.put(key, b"data", crc32c=crc32c(b"data"))
    damaged = CorruptData("other bytes", source="1", position=0)
    remote.fails = {"1": damaged}
    assert (await read.read(keys(3 * CALLS_AT_ONCE))).count(damaged) == 1
    assert remote.most == CALLS_AT_ONCE
    remote.fails = {"1": RetryLater("the store is away")}
    with pytest.raises(RetryLater, match="the store is away"):
        await read.read(keys(3 * CALLS_AT_ONCE))
    assert remote.under_way == 0


async def test_files_of_a_slow_disk_are_read_by_all_at_once(
    files: SmallObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Barrier(FILE_READERS, timeout=60)

    def slow(self: _Files, key: str) -> bytes:
        together.wait()
        return key.encode()

    monkeypatch.setattr(_Files, "_one", slow)
    assert await files.read(keys(FILE_READERS)) == [key.encode() for key in keys(FILE_READERS)]


async def test_files_of_a_quick_one_by_one_thread_after_the_other(
    files: SmallObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, is_alone = Lock(), []

    def quick(self: _Files, key: str) -> bytes:
        is_alone.append(alone.acquire(blocking=False))
        Event().wait(0.002)
        alone.release()
        return b""

    monkeypatch.setattr(small_objects, "FILES_TURN_S", 60.0)
    monkeypatch.setattr(_Files, "_one", quick)
    await files.read(keys(4 * FILE_READERS))
    assert is_alone == [True] * 4 * FILE_READERS


async def test_files_that_are_not_read_yet_are_left_when_it_is_closed(
    files: SmallObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in keys(2 * FILE_READERS):
        (tmp_path / key).write_bytes(b"data")
    begun, go_on = Event(), Event()
    quickly = _Files._quickly

    def held(self: _Files, keys: Sequence[str]) -> Generator[bytes | None]:
        for data in quickly(self, keys):
            begun.set()
            assert go_on.wait(30)
            yield data

    monkeypatch.setattr(_Files, "_quickly", held)
    reading = asyncio.create_task(files.read(keys(2 * FILE_READERS)))
    assert await asyncio.to_thread(begun.wait, 30)
    closing_ = asyncio.create_task(asyncio.to_thread(files.close))
    assert files._files is not None
    assert await asyncio.to_thread(files._files._ended.wait, 30)
    go_on.set()
    await closing_
    with pytest.raises((RetryLater, asyncio.CancelledError)):
        await reading


async def test_files_of_what_was_closed_are_not_read(files: SmallObjects) -> None:
    files.close()
    with pytest.raises(RetryLater, match="closed before everything was read"):
        await files.read(keys(1))
