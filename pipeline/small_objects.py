"""Small objects read whole, a hundred thousand of them: manifests.

To hand each to a thread by itself takes several times as long as to open and read a file. So a
thread takes a run of keys, by plain calls, and as many threads read as a store far away needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Event, Lock

from kafka_formats.errors import CorruptData, NotFound, RetryLater
from pipeline import ambient
from rsm_backends.blocking_reads import open_blocking
from rsm_backends.store_config import StoreConfig

READERS = 32
"""At once, as far as the store's connections allow: as many as hide the way to a store far away."""

FILE_READERS = 8
FILES_TURN_S = 0.05
"""So long a run of files goes on alone: threads take the interpreter from each other at every file,
which takes half as long again, unless the disk is waited for.
"""

KEYS_A_RUN = 64
BUFFER_BYTES = 128 * 1024
"""What is longer is read once more, into memory of its own."""


class SmallObjects:
    """Those of one store. Whoever makes it closes it."""

    def __init__(self, config: StoreConfig, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._ended = Event()
        self._is_remote = config.kind == "s3"
        self._readers = min(READERS, config.connections_max) if self._is_remote else FILE_READERS
        self._turn = Lock()
        self._threads = ThreadPoolExecutor(
            self._readers, thread_name_prefix="strandline-small-objects"
        )
        self._reads = open_blocking(
            config,
            wait=ambient.wait,
            monotonic=ambient.monotonic,
            random_fraction=ambient.random_fraction,
        )

    def close(self) -> None:
        """What is being read ends with RetryLater, or as cancelled."""
        self._ended.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._reads.close()

    def read(self, keys: Sequence[str]) -> list[bytes | NotFound | CorruptData]:
        """The first `bytes_max` bytes of each, or why there are none, in the order of the keys.
        Other errors of the store port are raised. Blocks.
        """
        run = max(1, min(KEYS_A_RUN, -(-len(keys) // self._readers)))
        runs = [keys[at : at + run] for at in range(0, len(keys), run)]
        return list(chain.from_iterable(self._threads.map(self._run, runs)))

    def _run(self, keys: Sequence[str]) -> list[bytes | NotFound | CorruptData]:
        buffer = memoryview(bytearray(min(BUFFER_BYTES, self._bytes_max)))
        is_alone = not self._is_remote and self._turn.acquire(timeout=FILES_TURN_S)
        try:
            return [self._one(key, buffer) for key in keys]
        finally:
            if is_alone:
                self._turn.release()

    def _one(self, key: str, buffer: memoryview) -> bytes | NotFound | CorruptData:
        if self._ended.is_set():
            raise RetryLater("the store was closed before all was read")
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
