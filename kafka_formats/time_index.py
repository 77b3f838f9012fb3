"""`.timeindex`: the largest timestamp up to a point of the segment, and the offset that has it.

12-byte entries: int64 timestamp in ms, int32 offset relative to the segment's base. A record with a
larger timestamp than an entry's lies after that entry's offset. Source: Kafka's TimeIndex.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest

NO_TIMESTAMP = -1
_ENTRY = struct.Struct(">qi")


class TimeIndex:
    """A parsed `.timeindex`: timestamps strictly ascend, offsets do not descend."""

    def __init__(self, base_offset: int, timestamps: Sequence[int], offsets: Sequence[int]) -> None:
        self._base_offset = base_offset
        self._timestamps = timestamps
        self._offsets = offsets

    @classmethod
    def parse(cls, data: Buffer, *, base_offset: int, source: str) -> TimeIndex:
        """Read the entries up to the first all-zero one: a live index has a preallocated tail."""
        if len(data) % _ENTRY.size:
            raise CorruptData(
                f"a time index has entries of {_ENTRY.size} bytes, and the file has {len(data)}",
                source=source,
                position=len(data) - len(data) % _ENTRY.size,
            )
        timestamps: list[int] = []
        offsets: list[int] = []
        last_timestamp = last_relative = -1
        for timestamp, relative in _ENTRY.iter_unpack(data):
            if timestamp == 0 and relative == 0 and not (last_timestamp < 0 and _is_real(data)):
                break
            if timestamp <= last_timestamp or relative < max(last_relative, 0):
                raise CorruptData(
                    f"the entry (timestamp {timestamp}, relative offset {relative}) does not "
                    f"ascend from ({last_timestamp}, {last_relative})",
                    source=source,
                    position=len(timestamps) * _ENTRY.size,
                )
            last_timestamp, last_relative = timestamp, relative
            timestamps.append(timestamp)
            offsets.append(base_offset + relative)
        return cls(base_offset, timestamps, offsets)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(timestamp in ms, offset) pairs."""
        return tuple(zip(self._timestamps, self._offsets, strict=True))

    @property
    def last(self) -> tuple[int, int]:
        """The segment's largest timestamp and its offset; (-1, base offset) without entries."""
        if not self._timestamps:
            return NO_TIMESTAMP, self._base_offset
        return self._timestamps[-1], self._offsets[-1]

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """The last entry at or before `timestamp_ms`; (-1, base offset) if all are later."""
        slot = bisect_right(self._timestamps, timestamp_ms)
        if not slot:
            return NO_TIMESTAMP, self._base_offset
        return self._timestamps[slot - 1], self._offsets[slot - 1]


def _is_real(data: Buffer) -> bool:
    """True if an all-zero first entry is real (time 0 at the base) and not a preallocated tail.

    It is real if it is the whole file, or if another entry follows.
    """
    return len(data) == _ENTRY.size or any(data[_ENTRY.size : 2 * _ENTRY.size])


def encode(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """Write (timestamp in ms, offset) pairs; one that does not fit is an InvalidRequest."""
    try:
        return b"".join(_ENTRY.pack(time, offset - base_offset) for time, offset in entries)
    except struct.error as error:
        raise InvalidRequest(f"a time index entry does not fit ({error})") from error
