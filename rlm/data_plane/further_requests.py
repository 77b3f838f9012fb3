"""Recognises a client's next requests, which equal the one before except for the offset. Pure.

A consumer that scans a partition repeats its request with the next offset. The listener gives the
worker the positions of offset and size once; so the worker can answer such requests without knowing
the protocol.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kafka_formats.primitives import Writer

CORRELATION = slice(8, 12)
"""The place of the correlation id in a request: after the size, the API key and its version."""
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class FurtherRequests:
    """`request` is the first request, with its size before it and its offset at `offset_at`. An
    answer is its size, the correlation id, `before`, the length of the batches (an int32 or, if
    `is_compact`, a varint of one more), the batches, and `after`. Requests that arrive before
    `until_s` are answered so, each with at most `bytes_max` or one batch. `until_s` is a time of
    the monotonic clock, which all processes of a machine share: the first answer to a slow client
    may take long.
    """

    request: bytes
    offset_at: int
    before: bytes
    after: bytes
    is_compact: bool
    bytes_max: int
    until_s: float

    def are_continued_by(self, request: bytes, offset: int) -> bool:
        """True if these bytes are the same request for `offset`."""
        at, behind = self.offset_at, self.offset_at + _OFFSET.size
        known = request[:at] + self.request[at:behind] + request[behind:]
        known = known[: CORRELATION.start] + self.request[CORRELATION] + known[CORRELATION.stop :]
        return known == self.request and request[at:behind] == _OFFSET.pack(offset)

    def head(self, request: bytes, size_bytes: int) -> bytes:
        """The bytes of the answer before its batches, which have `size_bytes`."""
        length = _INT32.pack(size_bytes)
        if self.is_compact:
            writer = Writer()
            writer.uvarint(size_bytes + 1)
            length = writer.done()
        head = request[CORRELATION] + self.before + length
        return _INT32.pack(len(head) + size_bytes + len(self.after)) + head
