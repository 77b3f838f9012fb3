"""A request body that is sent from memory to the socket without a copy.

aiohttp copies a file object's bytes twice and sends them in small steps; this `Payload` writes
large views of the caller's memory. botocore treats it as a file.
"""

from __future__ import annotations

import asyncio
import io

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from kafka_formats.crc32c import Buffer
from rsm_backends.body_pace import current_pace

WRITE_BYTES = 1024 * 1024
"""The bytes passed to the connection at once, which it keeps beside the socket's own buffer."""


class MemoryBody(Payload):
    """The body `data`, which must not change until the request has ended. It is sent at the pace
    that was current when it was made. A server that takes no byte for `silence_s` is given up.
    """

    _autoclose = True  # it needs no close

    def __init__(self, data: Buffer, silence_s: float | None = None) -> None:
        super().__init__(data)
        self._view = memoryview(data)
        self._size = len(self._view)
        self._at = 0
        self._pace = current_pace()
        self._silence_s = silence_s

    def read(self, size: int = -1) -> bytes:
        """Read as from a file: for the SHA-256 of a signed body."""
        end = self._view.nbytes if size < 0 else self._at + size
        data = bytes(self._view[self._at : end])
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek as in a file."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._view.nbytes}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """The position, like that of a file."""
        return self._at

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text, which aiohttp requires of every payload."""
        return bytes(self._view).decode(encoding, errors)

    async def as_bytes(self, *_: str) -> bytes:
        """A copy of the body as bytes."""
        return bytes(self._view)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send everything, from the start, waiting whenever the connection's buffer is full."""
        await self.write_with_length(writer, None)

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Write as `write` does, at most `content_length` bytes."""
        size = self._view.nbytes
        end = size if content_length is None else min(size, content_length)
        pace = self._pace
        step = WRITE_BYTES if pace is None else min(WRITE_BYTES, pace.piece_bytes)
        for at in range(0, end, step):
            behind = min(at + step, end)
            if pace is not None:
                await pace.before(behind - at)
            async with asyncio.timeout(self._silence_s):
                await writer.write(self._view[at:behind])
