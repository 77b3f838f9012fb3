"""Reusable buffers for the parts of uploads.

New pages of memory cost more CPU than reading the disk and sending the bytes together, so the
buffers are kept while there are copies, and for some seconds afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_S = 10.0
"""Time for which buffers are kept after the last copy, in seconds."""

KEPT_BYTES_MAX = 256 * 1024 * 1024


class PartBuffers:
    """Lends buffers to the copies of one event loop."""

    def __init__(self, *, kept_bytes_max: int = KEPT_BYTES_MAX, kept_s: float = KEPT_S) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept_s = kept_s
        self._kept: list[bytearray] = []
        self.kept_bytes = 0
        self._users = 0
        self._dropping: asyncio.TimerHandle | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep all buffers during a copy."""
        self._users += 1
        if self._dropping is not None:
            self._dropping.cancel()
            self._dropping = None
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and self._kept:
                loop = asyncio.get_running_loop()
                self._dropping = loop.call_later(self._kept_s, self._drop)

    def take(self, size: int) -> bytearray:
        """A buffer of `size` bytes with any content."""
        for number, buffer in enumerate(self._kept):
            if len(buffer) == size:
                self.kept_bytes -= size
                return self._kept.pop(number)
        return bytearray(size)

    def give_back(self, buffer: bytearray, view: memoryview | None = None) -> None:
        """Return a buffer, and release the caller's `view` of it.

        A buffer that still has other views, such as in the send queue of a closing connection, is
        not lent again.
        """
        if self.kept_bytes + len(buffer) <= self._kept_bytes_max and _released(buffer, view):
            self._kept.append(buffer)
            self.kept_bytes += len(buffer)

    def _drop(self) -> None:
        self._kept.clear()
        self.kept_bytes = 0
        self._dropping = None


def _released(buffer: bytearray, view: memoryview | None) -> bool:
    """True if no view of the buffer is left: Python refuses to resize one that has views."""
    try:
        if view is not None:
            view.release()
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
