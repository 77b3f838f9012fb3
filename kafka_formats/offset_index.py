"""`.index`: from an offset to a byte position in the `.log` file at or before its batch.

8-byte entries: int32 offset relative to the segment's base, int32 position. Source: Kafka's
OffsetIndex.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest

_ENTRY = struct.Struct(">ii")


class OffsetIndex:
    """A parsed `.index`: offsets and positions, both strictly ascending."""

    def __init__(self, offsets: Sequence[int], positions: Sequence[int]) -> None:
        self._offsets = offsets
        self._positions = positions

    @classmethod
    def parse(cls, data: Buffer, *, base_offset: int, source: str) -> OffsetIndex:
        """Read the entries up to the first all-zero one: a live index has a preallocated tail."""
        if len(data) % _ENTRY.size:
            raise CorruptData(
                f"an offset index has entries of {_ENTRY.size} bytes, and the file has {len(data)}",
                source=source,
                position=len(data) - len(data) % _ENTRY.size,
            )
        offsets: list[int] = []
        positions: list[int] = []
        last_relative = last_position = -1
        for relative, position in _ENTRY.iter_unpack(data):
            if relative == 0 and position == 0:
                break
            if relative <= last_relative or position <= last_position:
                raise CorruptData(
                    f"the entry (relative offset {relative}, position {position}) does not ascend "
                    f"from ({last_relative}, {last_position})",
                    source=source,
                    position=len(offsets) * _ENTRY.size,
                )
            last_relative, last_position = relative, position
            offsets.append(base_offset + relative)
            positions.append(position)
        return cls(offsets, positions)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(offset, position) pairs."""
        return tuple(zip(self._offsets, self._positions, strict=True))

    def lookup(self, offset: int) -> int:
        """Position from which to scan for `offset`; 0 if it is before the first entry."""
        slot = bisect_right(self._offsets, offset)
        return self._positions[slot - 1] if slot else 0

    def upper_bound_offset(self, position: int) -> int | None:
        """Offset of the first entry at or after `position`; None if no entry lies there.

        No batch that starts before `position` holds an offset above it.
        """
        slot = bisect_left(self._positions, position)
        return self._offsets[slot] if slot < len(self._offsets) else None


def encode(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """Write (offset, position) pairs; one that does not fit is an InvalidRequest."""
    try:
        return b"".join(_ENTRY.pack(offset - base_offset, at) for offset, at in entries)
    except struct.error as error:
        raise InvalidRequest(f"an offset index entry does not fit ({error})") from error


def floor_position(index: bytes, relative_offset: int) -> int:
    """The position of the last entry at or below an offset relative to the base; 0 without one.
    Searches the raw bytes: parsing a big index takes longer than the read it is for.
    """
    return _floor(index, relative_offset, column=0)


def floor_batch(index: bytes, position: int) -> int:
    """The last position of the raw index at or below `position`, where a batch begins."""
    return _floor(index, position, column=1)


def _floor(index: bytes, wanted: int, *, column: int) -> int:
    def value(slot: int) -> int:
        found: int = _ENTRY.unpack_from(index, slot * _ENTRY.size)[column]
        return found

    slot = bisect_right(range(len(index) // _ENTRY.size), wanted, key=value)
    if slot == 0:
        return 0
    position: int = _ENTRY.unpack_from(index, (slot - 1) * _ENTRY.size)[1]
    return position


def without_zeros(index: bytes) -> bytes:
    """The raw index without the preallocated tail of one that was not trimmed."""
    used = len(index.rstrip(b"\0"))
    return index[: -(-used // _ENTRY.size) * _ENTRY.size]
