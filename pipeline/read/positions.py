"""Finds the bytes of a `.log` that hold a range of offsets, by an offset index. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from kafka_formats.offset_index import OffsetIndex

_SLACK_ENTRIES = 2
"""An entry names the first or the last offset of its batch, depending on who wrote the index: the
batch of the second entry above an offset begins above it either way."""


class ByteRange(NamedTuple):
    """Bytes [start, end) of a segment; both are the start of a batch, or the segment's end."""

    start: int
    end: int


def byte_range(
    index: OffsetIndex, first_offset: int, last_offset: int, log_bytes: int
) -> ByteRange:
    """Bytes with all batches that hold offsets of `first_offset` to `last_offset`, inclusive, and
    with one batch after them unless the segment ends there.
    """
    entries = index.entries
    above = bisect_right(entries, last_offset, key=lambda entry: entry[0])
    behind = above + _SLACK_ENTRIES
    end = entries[behind][1] if behind < len(entries) else log_bytes
    return ByteRange(index.lookup(first_offset), end)
