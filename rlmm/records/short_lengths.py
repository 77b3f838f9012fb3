"""Kafka's compact lengths (bytes + 1, as a uvarint) of one or two bytes, in one step. Pure."""

from __future__ import annotations

LENGTH_MAX = 0x1FF
"""The highest length handled here, including the + 1."""
NOT_SHORT = -1

_TWO_BYTES_FROM = 0x80
_SECOND_MAX = LENGTH_MAX >> 7

SHORT_LENGTHS: tuple[bytes, ...] = tuple(
    bytes((length,)) if length < _TWO_BYTES_FROM else bytes((length & 0x7F | 0x80, length >> 7))
    for length in range(LENGTH_MAX + 1)
)
"""The encoding of each length."""


def read_short_length(value: bytes, at: int) -> tuple[int, int]:
    """(length, position after it) or NOT_SHORT. IndexError: the bytes end before it does."""
    first = value[at]
    if first < _TWO_BYTES_FROM:
        return first, at + 1
    second = value[at + 1]
    if not 0 < second <= _SECOND_MAX:
        return NOT_SHORT, at
    return first & 0x7F | second << 7, at + 2
