"""Memory for the parts on their way, used again and again.

Fresh pages cost more CPU than reading the disk and sending the bytes together, so the buffers of
all copies are kept while there are copies, and for some seconds after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_S = 10.0
"""How long buffers are kept once no copy needs them."""

KEPT_BYTES_MAX = 256 * 1024 * 1024


class PartBuffers:
    """Lends buffers; belongs to one event loop."""

    def __init__(self, *, kept_bytes_max: int = KEPT_BYTES_MAX, kept_s: float = KEPT_S) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._kept_s = kept_s
        self._kept: list[bytearray] = []
        self._kept_bytes = 0
        self._users = 0
        self._dropping: asyncio.TimerHandle | None = None

    @property
    def kept_bytes(self) -> int:
        """Memory that waits to be used again."""
        return self._kept_bytes

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Around a copy: nothing is dropped meanwhile."""
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
        """A buffer of `size` bytes, whatever is in them."""
        for number, buffer in enumerate(self._kept):
            if len(buffer) == size:
                self._kept_bytes -= size
                return self._kept.pop(number)
        return bytearray(size)

    def give_back(self, buffer: bytearray, view: memoryview | None = None) -> None:
        """Nobody reads `buffer` any more; `view`, the caller's own of it, is released.

        A buffer that somebody still has a view of, as the send queue of a connection being closed
        may, is never lent again.
        """
        if self._kept_bytes + len(buffer) <= self._kept_bytes_max and _released(buffer, view):
            self._kept.append(buffer)
            self._kept_bytes += len(buffer)

    def _drop(self) -> None:
        self._kept.clear()
        self._kept_bytes = 0
        self._dropping = None


def _released(buffer: bytearray, view: memoryview | None) -> bool:
    """Whether no view of the buffer is left: Python refuses to change the length of any other."""
    try:
        if view is not None:
            view.release()
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
