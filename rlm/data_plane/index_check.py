"""Checks the broker's offset index and time index against the batches, and rebuilds wrong ones.

With a damaged index readers would miss records, and indexes have no checksum. So a missing,
malformed or wrong index is rebuilt from the batches, with the entries that a broker would write on
recovery (Kafka's LogSegment).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from kafka_formats import offset_index, time_index
from kafka_formats.errors import CorruptData
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.record_batch import LOG_OVERHEAD, HeaderFields
from kafka_formats.time_index import TimeIndex

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of `index.interval.bytes`: the least number of bytes between two entries."""

_NEVER = 2**64  # above every position and offset


class IndexCheck:
    """Takes the headers of all batches in order, then gives the bytes of both indexes.
    `read_offset_index` and `read_time_index` return the broker's files, None if missing.
    """

    def __init__(
        self,
        base_offset: int,
        read_offset_index: Callable[[], bytes | None],
        read_time_index: Callable[[], bytes | None],
    ) -> None:
        self._base_offset = base_offset
        self._offset_entries = _entries(OffsetIndex.parse, read_offset_index, base_offset)
        self._time_entries = _entries(TimeIndex.parse, read_time_index, base_offset)
        self._next_offset_entry = 0
        self._next_time_entry = 0
        # The next entries are checked at these positions; batches before them don't matter.
        self._next_offset_position = _second(self._offset_entries, 0)
        self._awaited_offset = _NEVER  # offset of the last entry, until a batch ends there
        self._next_time_offset = _second(self._time_entries, 0)
        self._made_offsets = array("q")  # offset, position, offset, position, ...
        self._made_times = array("q")  # timestamp, offset, ...
        self.max_timestamp_ms = -1  # of all batches
        self._max_timestamp_offset = base_offset
        self._bytes_since_entry = 0

    def take(self, headers: Sequence[HeaderFields], position: int) -> None:
        """Take consecutive verified batches, the first of them at `position` of the `.log`."""
        max_timestamp = self.max_timestamp_ms
        since_entry = self._bytes_since_entry
        for base_offset, length, _, _, _, _, delta, _, timestamp, _, _, _, _ in headers:
            last_offset = base_offset + delta
            if position >= self._next_offset_position:
                self._check_offsets(base_offset, position)
            if last_offset >= self._awaited_offset:
                self._check_end(last_offset)
            if last_offset >= self._next_time_offset:
                self._check_times(base_offset, last_offset, timestamp)
            if timestamp > max_timestamp:
                self.max_timestamp_ms = max_timestamp = timestamp
                self._max_timestamp_offset = last_offset
            if since_entry > INDEX_INTERVAL_BYTES:
                self._made_offsets.extend((last_offset, position))
                self._make_time_entry()
                since_entry = 0
            size = LOG_OVERHEAD + length
            since_entry += size
            position += size
        self._bytes_since_entry = since_entry

    def offset_index(self) -> bytes:
        """The broker's offset index if all its entries are right, else a rebuilt one."""
        entries = self._offset_entries
        all_right = entries is not None and self._next_offset_entry == len(entries)
        if entries is None or not all_right or self._awaited_offset < _NEVER:
            entries = _pairs(self._made_offsets)
        return offset_index.encode(entries, self._base_offset)

    def time_index(self) -> bytes:
        """The broker's time index if all its entries are right, else a rebuilt one."""
        entries = self._time_entries
        if entries is None or self._next_time_entry < len(entries) or not self._ends_at_max():
            self._make_time_entry()
            entries = _pairs(self._made_times)
        return time_index.encode(entries, self._base_offset)

    def _ends_at_max(self) -> bool:
        """True if the last entry has the largest timestamp, which a broker adds when it rolls."""
        return not self._time_entries or self._time_entries[-1][0] == self.max_timestamp_ms

    def _check_offsets(self, base_offset: int, position: int) -> None:
        """Check the next entry: its position must be that of this batch, and its offset at or above
        the batch's base offset, since it is the last offset of the append, which may have several
        batches.
        """
        entries = self._offset_entries
        at = self._next_offset_entry
        if entries is not None and at < len(entries):
            right = entries[at][1] == position and entries[at][0] >= base_offset
            if right and self._awaited_offset == _NEVER:
                self._next_offset_entry += 1
                self._awaited_offset = entries[at][0]
            else:
                self._offset_entries = None
        self._next_offset_position = _second(self._offset_entries, self._next_offset_entry)

    def _check_end(self, last_offset: int) -> None:
        """Check that a batch ends at the offset of the last entry."""
        if last_offset != self._awaited_offset:
            self._offset_entries = None
        self._awaited_offset = _NEVER

    def _check_times(self, base_offset: int, last_offset: int, timestamp: int) -> None:
        """Check that an entry has the largest timestamp of the batch with its offset, and that all
        earlier batches have smaller ones.
        """
        entries = self._time_entries
        while (
            entries is not None
            and self._next_time_entry < len(entries)
            and entries[self._next_time_entry][1] <= last_offset
        ):
            time, offset = entries[self._next_time_entry]
            if time <= self.max_timestamp_ms or time != timestamp or offset < base_offset:
                self._time_entries = entries = None
            else:
                self._next_time_entry += 1
        self._next_time_offset = _second(self._time_entries, self._next_time_entry)

    def _make_time_entry(self) -> None:
        if self.max_timestamp_ms >= 0 and (
            not self._made_times or self.max_timestamp_ms > self._made_times[-2]
        ):
            self._made_times.extend((self.max_timestamp_ms, self._max_timestamp_offset))


def _entries(
    parse: Callable[..., OffsetIndex | TimeIndex],
    read: Callable[[], bytes | None],
    base_offset: int,
) -> tuple[tuple[int, int], ...] | None:
    """The broker's entries; None if the index is missing, too large or malformed."""
    try:
        data = read()
        return (
            None if data is None else parse(data, base_offset=base_offset, source="index").entries
        )
    except CorruptData:
        return None


def _second(entries: tuple[tuple[int, int], ...] | None, at: int) -> int:
    return entries[at][1] if entries is not None and at < len(entries) else _NEVER


def _pairs(flat: array[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(flat[::2], flat[1::2], strict=True))
