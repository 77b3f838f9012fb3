"""A client's next requests, each like the one before but for its offset, known by their bytes.

Pure. A consumer that scans a partition repeats its request with the next offset. The listener tells
the worker once where offset and size stand; so the worker answers without knowing the protocol.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafka_formats.primitives import Writer

CORRELATION = slice(8, 12)
"""The place of the correlation id in a request with its size in front, behind API key and
version.
"""
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class FurtherRequests:
    """`request` is the first one, with its size in front and an offset at `offset_at`. An answer is
    its size, the correlation id, `before`, the length of the batches (an int32 or, if `is_compact`,
    a varint of one more), the batches, `after`. So are those requests answered that come before
    `until_s`, each with `bytes_max` or one batch. All processes of a machine share that monotonic
    clock, and the first answer may be on its way to a slow client for long.
    """

    request: bytes
    offset_at: int
    before: bytes
    after: bytes
    is_compact: bool
    bytes_max: int
    until_s: float

    def are_continued_by(self, request: bytes, offset: int) -> bool:
        """True if the bytes are the request for `offset`."""
        at, behind = self.offset_at, self.offset_at + _OFFSET.size
        known = request[:at] + self.request[at:behind] + request[behind:]
        known = known[: CORRELATION.start] + self.request[CORRELATION] + known[CORRELATION.stop :]
        return known == self.request and request[at:behind] == _OFFSET.pack(offset)

    def head(self, request: bytes, size_bytes: int) -> bytes:
        """The answer up to its batches, `size_bytes` of them."""
        length = _INT32.pack(size_bytes)
        if self.is_compact:
            writer = Writer()
            writer.uvarint(size_bytes + 1)
            length = writer.done()
        head = request[CORRELATION] + self.before + length
        return _INT32.pack(len(head) + size_bytes + len(self.after)) + head
