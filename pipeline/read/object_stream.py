"""Streams the bytes of an object in order, through a few reused buffers.

From a store on the network several ranges are fetched at once, ahead of the reader, since one
connection gives a fraction of a store's speed. With as many readers as fetches, each reads one
answer, which is checked while it is in the processor's cache. Files are read when needed: the
system reads ahead by itself. Memory is bounded by the buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from kafka_formats.errors import RetryLater
from rsm_backends.blocking_reads import BlockingObject
from rsm_backends.store_config import StoreConfig

PIECE_BYTES = 16 * 1024 * 1024
"""Bytes of one GET. A request costs a store as much as half a MiB of data, and us a quarter MiB."""

STEP_BYTES = 1024 * 1024
"""Bytes read at once from a file, or from an answer that one thread reads: they are still in the
processor's cache when they are checked.
"""

FETCHES = 4
"""GETs in progress at once for one task. With the pieces in use it holds at most `FETCHES` + 1, or
with several readers + one each, of `PIECE_BYTES`: 80 MiB, or 96 with two.
"""

SMALL_BYTES = 1024 * 1024
"""Up to this size a buffer is made as large as needed, above it as large as a whole piece."""

KEPT_BUFFERS = FETCHES + 2
"""Buffers of `PIECE_BYTES` kept for a process's next task: fresh memory costs as much as reading
into it.
"""

_kept: list[bytearray] = []

DEADLINES_PER_PIECE = 3
"""A read ends by itself within two deadlines of its store; a longer one hangs."""


class Range(NamedTuple):
    """Bytes [start, start + size) of an object."""

    start: int
    size: int


def ranges(start: int, end: int, piece_bytes: int) -> Iterator[Range]:
    """[start, end) in pieces of `piece_bytes`, the last one shorter."""
    for at in range(start, end, piece_bytes):
        yield Range(at, min(piece_bytes, end - at))


class ObjectStream:
    """The buffers and, for a store on the network, the threads of one task and one store.

    `readers` is the number of threads of the task that read at once; they share the GETs.
    `in_order`: one thread reads the ranges given to `pieces`, from start to end.
    """

    def __init__(self, config: StoreConfig, *, readers: int = 1) -> None:
        remote = config.kind == "s3"
        fetches = min(FETCHES, config.connections_max)
        self._ahead = fetches // readers
        fetched = remote and self._ahead > 1
        self.in_order = not fetched
        self.piece_bytes = PIECE_BYTES if fetched else STEP_BYTES
        self._threads = ThreadPoolExecutor(fetches, thread_name_prefix="fetch") if fetched else None
        self._deadline_s = DEADLINES_PER_PIECE * config.deadline_s
        self._free: list[bytearray] = []
        while fetched and _kept:
            try:
                self._free.append(_kept.pop())
            except IndexError:  # another thread was quicker
                break

    def close(self) -> None:
        """Keep the buffers for the next task; threads end after their present read."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            for buffer in self._free:
                if len(buffer) == self.piece_bytes and len(_kept) < KEPT_BUFFERS:
                    _kept.append(buffer)
        self._free = []

    def pieces(self, opened: BlockingObject, wanted: Iterable[Range]) -> Generator[memoryview]:
        """The bytes of each range, in order; a piece is valid until the next is asked for.

        Ends early with a shorter or empty piece if the object ends.
        """
        if self._threads is None:
            return self._read(opened, wanted)
        return self._fetched(opened, wanted, self._threads)

    def _read(self, opened: BlockingObject, wanted: Iterable[Range]) -> Generator[memoryview]:
        buffer = bytearray()
        try:
            for range_ in wanted:
                if len(buffer) < range_.size:
                    self._free.append(buffer)
                    buffer = self._buffer(range_.size)
                piece = memoryview(buffer)[: range_.size]
                filled = opened.read_into(piece, range_.start)
                yield piece[:filled]
                if filled < range_.size:
                    return
        finally:
            self._free.append(buffer)

    def _fetched(
        self, opened: BlockingObject, wanted: Iterable[Range], threads: ThreadPoolExecutor
    ) -> Generator[memoryview]:
        under_way: deque[tuple[Future[int], bytearray, int]] = deque()
        left = iter(wanted)
        try:
            while True:
                while len(under_way) < self._ahead and (range_ := next(left, None)) is not None:
                    buffer = self._buffer(range_.size)
                    piece = memoryview(buffer)[: range_.size]
                    fetch = threads.submit(opened.read_into, piece, range_.start)
                    under_way.append((fetch, buffer, range_.size))
                if not under_way:
                    return
                fetch, buffer, size = under_way[0]
                filled = self._result(fetch)
                under_way.popleft()
                yield memoryview(buffer)[:filled]
                self._free.append(buffer)
                if filled < size:
                    return
        finally:
            # A buffer that a thread may still write to is not reused: it goes with its thread.
            fetches = [fetch for fetch, _, _ in under_way if not fetch.cancel()]
            done = wait(fetches, timeout=self._deadline_s).done
            self._free += [buffer for fetch, buffer, _ in under_way if fetch in done]

    def _result(self, fetch: Future[int]) -> int:
        try:
            return fetch.result(timeout=self._deadline_s)
        except TimeoutError:
            raise RetryLater(
                f"a read of the store did not end within {self._deadline_s:g} s"
            ) from None

    def _buffer(self, size: int) -> bytearray:
        """A free buffer that is large enough; those too small are dropped."""
        while True:
            try:
                buffer = self._free.pop()
            except IndexError:  # asked before, another reader may come in between
                return bytearray(size if size <= SMALL_BYTES else max(size, self.piece_bytes))
            if len(buffer) >= size:
                return buffer
