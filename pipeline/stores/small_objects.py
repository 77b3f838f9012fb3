"""Reads small objects whole, a hundred thousand of them: manifests.

Handing each file to a thread takes several times as long as opening and reading it. So a thread
takes a run of keys and reads them with as few blocking calls as possible. A store on the network is
asked on the event loop: with threads the requests would take half as long again, since threads take
the interpreter from each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from threading import Event, Lock

from kafka_formats.errors import CorruptData, NotFound, RetryLater
from pipeline.process import ambient
from pipeline.stores.many_calls import many_calls
from rsm_backends.blocking_reads import open_blocking
from rsm_backends.file_runs import read_runs
from rsm_backends.object_files import ObjectFiles
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all

FILE_READERS = 8
FILES_A_RUN = 64
FILES_TURN_S = 0.05
"""Time that a run of files proceeds alone: threads take the interpreter from each other at every
file, which takes half as long again, unless they wait for the disk.
"""

BUFFER_BYTES = 128 * 1024
"""First buffer for a file; a longer file is read again into a larger one."""

Read = bytes | NotFound | CorruptData
"""An object's bytes, or the error of reading it."""


class SmallObjects:
    """Reads the small objects of one store. The caller closes this and the store."""

    def __init__(self, config: StoreConfig, store: ObjectStore, *, bytes_max: int) -> None:
        self._store = store
        self._bytes_max = bytes_max
        path = config.path if config.kind == "filesystem" else None
        self._files = None if path is None else _Files(config, path, bytes_max)

    def close(self) -> None:
        """End reads in progress with RetryLater, or by cancelling them."""
        if self._files is not None:
            self._files.close()

    async def read(self, keys: Sequence[str]) -> list[Read]:
        """The first `bytes_max` bytes of each object, in the order of the keys, or its NotFound or
        CorruptData. Other errors of the store port are raised.
        """
        if self._files is not None:
            return await asyncio.to_thread(self._files.read, keys)
        return await many_calls(self._get, keys)

    async def _get(self, key: str) -> Read:
        try:
            return await read_all(self._store, key, end=self._bytes_max)
        except (NotFound, CorruptData) as error:
            return error


class _Files:
    """Reads files by blocking calls in threads."""

    def __init__(self, config: StoreConfig, path: Path, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._objects = ObjectFiles(path)
        self._ended = Event()
        self._turn = Lock()
        self._threads = ThreadPoolExecutor(FILE_READERS, thread_name_prefix="strandline-files")
        self._reads = open_blocking(
            config,
            wait=ambient.wait,
            monotonic=ambient.monotonic,
            random_fraction=ambient.random_fraction,
        )

    def close(self) -> None:
        self._ended.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._reads.close()
        self._objects.close()

    def read(self, keys: Sequence[str]) -> list[Read]:
        run = max(1, min(FILES_A_RUN, -(-len(keys) // FILE_READERS)))
        runs = [keys[at : at + run] for at in range(0, len(keys), run)]
        try:
            read = self._threads.map(self._run, runs)
        except RuntimeError:  # the threads were shut down
            raise _closed() from None
        return list(chain.from_iterable(read))

    def _run(self, keys: Sequence[str]) -> list[Read]:
        found: list[Read] = []
        is_alone = self._turn.acquire(timeout=FILES_TURN_S)
        try:
            with closing(self._quickly(keys)) as quickly:
                for key, data in zip(keys, quickly, strict=True):
                    if self._ended.is_set():
                        raise _closed()
                    found.append(self._one(key) if data is None else data)
            return found
        finally:
            if is_alone:
                self._turn.release()

    def _quickly(self, keys: Sequence[str]) -> Generator[bytes | None]:
        return read_runs(self._objects, keys, bytes_max=self._bytes_max)

    def _one(self, key: str) -> Read:
        buffer = memoryview(bytearray(min(BUFFER_BYTES, self._bytes_max)))
        try:
            opened = self._reads.open(key)
            try:
                size = opened.read_into(buffer, 0)
                if size == len(buffer) < self._bytes_max:
                    buffer = memoryview(bytearray(self._bytes_max))
                    size = opened.read_into(buffer, 0)
                return bytes(buffer[:size])
            finally:
                opened.close()
        except (NotFound, CorruptData) as error:
            return error


def _closed() -> RetryLater:
    return RetryLater("the store was closed before everything was read")
