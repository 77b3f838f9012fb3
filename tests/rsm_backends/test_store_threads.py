"""Calls that hang in the file system: told, counted, and as many as there are threads at most."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rsm_backends import store_threads
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.store_threads import StoreThreads, hanging_calls


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Set: what hangs goes on."""
    found = threading.Event()
    yield found
    found.set()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_threads, "HANGS_AFTER_S", 0.0)


async def given_up(threads: StoreThreads, gate: threading.Event, number: int) -> None:
    """So many calls begin, hang, and are cancelled."""
    for _ in range(number):
        begun = threading.Event()

        def work(begun: threading.Event = begun) -> None:
            begun.set()
            gate.wait()

        call = asyncio.ensure_future(threads.run("k", work))
        await asyncio.to_thread(begun.wait)
        call.cancel()
        await asyncio.wait({call})


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)


async def test_while_all_threads_hang_nothing_more_is_taken_and_then_all_is_again(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    threads = StoreThreads("the store", 2)
    with caplog.at_level(logging.WARNING):
        await given_up(threads, gate, 2)
        await until(lambda: threads.hanging == 2)
        with pytest.raises(RetryLater, match="all 2 threads of the store hang"):
            await threads.run("k", int)
        assert "2 of 2 threads hang" in caplog.text
        gate.set()
        await until(lambda: "a call that hung has ended; 0 hang" in caplog.text)
    assert await threads.run("k", lambda: 7) == 7
    await threads.close()


async def test_one_that_hangs_leaves_the_others_their_threads(gate: threading.Event) -> None:
    threads = StoreThreads("the store", 2)
    await given_up(threads, gate, 1)
    await until(lambda: threads.hanging == 1)
    assert await threads.run("k", lambda: 7) == 7


async def test_a_call_that_was_given_up_before_it_began_never_begins(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "HANGS_AFTER_S", 3600.0)
    threads = StoreThreads("the store", 1)
    await given_up(threads, gate, 1)
    begun: list[int] = []
    call = asyncio.ensure_future(threads.run("late", lambda: begun.append(1)))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    gate.set()
    assert await threads.run("k", lambda: 7) == 7
    assert begun == []


async def test_a_call_that_ends_soon_after_it_was_given_up_is_not_told(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "HANGS_AFTER_S", 3600.0)
    threads = StoreThreads("the store", 1)
    await given_up(threads, gate, 1)
    assert threads.hanging == 0


async def test_a_store_whose_disk_hangs_says_so_and_closes_all_the_same(
    gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FilesystemStore(tmp_path)
    monkeypatch.setattr("rsm_backends.object_files.ObjectFiles.describe", lambda *_: gate.wait())

    async def says_so() -> bool:
        try:
            async with asyncio.timeout(0.02):
                await store.head("k")
        except TimeoutError:
            return False
        except RetryLater as error:
            return str(tmp_path) in str(error)
        return False

    async with asyncio.timeout(30):
        while not await says_so():
            pass
        await store.close()


async def test_a_call_given_up_just_now_keeps_no_close_and_what_did_not_begin_never_does(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_threads, "HANGS_AFTER_S", 3600.0)
    monkeypatch.setattr(store_threads, "CLOSE_DEADLINE_S", 0.05)
    threads = StoreThreads("the store", 1)
    await given_up(threads, gate, 1)
    begun: list[int] = []
    late = asyncio.ensure_future(threads.run("late", lambda: begun.append(1)))
    await asyncio.sleep(0)
    assert not await threads.close()
    assert "the store: closed while 1 call hangs" in caplog.text
    gate.set()
    with pytest.raises(RetryLater, match="the store is closed, and the call did not begin"):
        await late
    with pytest.raises(RetryLater, match="the store is closed"):
        await threads.run("later still", lambda: begun.append(2))
    await until(lambda: not threads._under_way)
    assert await threads.close()
    assert begun == []


async def test_a_close_waits_for_a_write_under_way(gate: threading.Event) -> None:
    threads = StoreThreads("the store", 1)
    writing = asyncio.ensure_future(threads.run("k", lambda: gate.wait() and 7))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(threads.close())
    await asyncio.sleep(0)
    gate.set()
    assert await closing
    assert await writing == 7


async def test_those_that_hang_are_counted_by_store(gate: threading.Event) -> None:
    threads = StoreThreads("counted", 2)
    await given_up(threads, gate, 1)
    await until(lambda: threads.hanging == 1)
    assert hanging_calls()["counted"] == 1
    gate.set()
    await until(lambda: threads.hanging == 0)
    assert "counted" not in hanging_calls()


async def test_the_root_stays_open_for_a_call_that_hangs(
    gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "HANGS_AFTER_S", 3600.0)
    monkeypatch.setattr(store_threads, "CLOSE_DEADLINE_S", 0.05)
    monkeypatch.setattr("rsm_backends.object_files.ObjectFiles.describe", lambda *_: gate.wait())
    store = FilesystemStore(tmp_path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await store.head("k")
    await store.close()
    assert store._files._root_fd >= 0
    gate.set()
    await until(lambda: not store._threads._under_way)
    await store.close()
    assert store._files._root_fd == -1


class Hanging(FilesystemStore):
    """A call hangs from when it sets `begun` until the gate is open."""

    def __init__(self, root: Path, gate: threading.Event) -> None:
        super().__init__(root)
        self.begun, self.gate = threading.Event(), gate

    def hang(self) -> None:
        self.begun.set()
        self.gate.wait()

    async def wakes_later(self, call: Coroutine[None, None, object]) -> None:
        """The call hangs, is given up, and goes on to its end."""
        task = asyncio.ensure_future(call)
        await asyncio.to_thread(self.begun.wait)
        task.cancel()
        await asyncio.wait({task})
        self.gate.set()
        await until(lambda: not self._threads._under_way)


async def test_a_delete_that_was_given_up_takes_nothing_more_when_it_wakes(
    gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, unlink = Hanging(tmp_path, gate), os.unlink
    for key in ("a", "b"):
        await store.put(key, b"", crc32c=0)

    def hangs(path: str, *, dir_fd: int | None = None) -> None:
        if path == "a":
            store.hang()
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", hangs)
    await store.wakes_later(store.delete_many(["a", "b"]))
    assert list(tmp_path.glob("?")) == [tmp_path / "b"]
    await store.close()


@pytest.mark.parametrize("create_only", [True, False])
async def test_an_object_whose_write_was_given_up_does_not_appear_when_that_wakes(
    create_only: bool, gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fsync = Hanging(tmp_path, gate), os.fsync

    def hangs(fd: int) -> None:
        store.hang()
        fsync(fd)

    monkeypatch.setattr(os, "fsync", hangs)
    await store.wakes_later(store.put("a", b"", crc32c=0, create_only=create_only))
    assert list(tmp_path.glob("?")) == []
    await store.close()


@pytest.mark.parametrize("create_only", [True, False])
async def test_a_write_that_was_given_up_in_a_folder_that_hangs_names_nothing_when_it_wakes(
    create_only: bool, gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, mkdir = Hanging(tmp_path, gate), os.mkdir

    def hangs(path: str, *mode: int, dir_fd: int | None = None) -> None:
        if path == "folder":
            store.hang()
        mkdir(path, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", hangs)
    await store.wakes_later(store.put("folder/a", b"", crc32c=0, create_only=create_only))
    assert list(tmp_path.glob("folder/*")) == []
    await store.close()


async def test_a_delete_that_was_given_up_in_a_folder_that_hangs_takes_nothing_when_it_wakes(
    gate: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, os_open = Hanging(tmp_path, gate), os.open
    await store.put("folder/a", b"", crc32c=0)

    def hangs(path: str, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if path == "folder":
            store.hang()
        return os_open(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", hangs)
    await store.wakes_later(store.delete_many(["folder/a"]))
    assert list(tmp_path.glob("folder/*")) == [tmp_path / "folder" / "a"]
    await store.close()
