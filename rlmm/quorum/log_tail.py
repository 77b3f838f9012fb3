"""The newest batches in memory: followers and the view read the tail without reading the disk.

Batches that the disk does not have yet are kept above the bound, so that an offset missing here is
on the disk.
"""

from __future__ import annotations

from bisect import bisect_right

from rlmm.metadata_log import CommittedGroup, CommittedRecord
from rlmm.quorum.framing import PlacedBatch


class Tail:
    """Neighbouring batches, the newest last."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: list[PlacedBatch] = []
        self._bases: list[int] = []
        self._first = 0
        self._generation = 0

    def add(self, batch: PlacedBatch) -> None:
        self._batches.append(batch)
        self._bases.append(batch.base_offset)
        self._bytes += len(batch.data)

    def written(self, end_offset: int, generation: int) -> None:
        """Record that the disk has all below `end_offset`, if the truncation generation is the
        same.
        """
        if generation != self._generation:
            return
        batches, first = self._batches, self._first
        while self._bytes > self._bytes_max and first < len(batches):
            if batches[first].end_offset > end_offset:
                break
            self._bytes -= len(batches[first].data)
            first += 1
        self._first = first
        # Dropped batches are deleted in bulk, so that each costs the same small time.
        if first > len(batches) // 2:
            del batches[:first], self._bases[:first]
            self._first = 0

    def truncate_to(self, end_offset: int, generation: int) -> None:
        """Remove batches: the log was truncated, at a batch border."""
        self._generation = generation
        while len(self._batches) > self._first and self._bases[-1] >= end_offset:
            self._bytes -= len(self._batches.pop().data)
            self._bases.pop()
        if len(self._batches) == self._first:
            # The other batches are dropped already, and perhaps truncated: new ones after them
            # would be out of order, and not be found.
            self._batches.clear()
            self._bases.clear()
            self._first = 0

    def reset(self, generation: int) -> None:
        """Remove all batches: a snapshot replaced the log."""
        self._generation = generation
        self._batches.clear()
        self._bases.clear()
        self._bytes = self._first = 0

    def bytes_at(self, offset: int, end_offset: int, bytes_max: int) -> bytes | None:
        """Whole batches from the one with `offset` on, at least one. None: not in memory."""
        at = self._index(offset)
        if at is None:
            return None
        size = 0
        parts: list[bytes] = []
        for index in range(at, len(self._batches)):
            batch = self._batches[index]
            if batch.end_offset > end_offset or (parts and size + len(batch.data) > bytes_max):
                break
            parts.append(batch.data)
            size += len(batch.data)
        return b"".join(parts)

    def group_at(self, offset: int, end_offset: int, records_max: int) -> CommittedGroup | None:
        """About `records_max` records from `offset` on, below `end_offset`. None: not in memory."""
        at = self._index(offset)
        if at is None:
            return None
        records: list[CommittedRecord] = []
        end, epoch = offset, -1
        for index in range(at, len(self._batches)):
            batch = self._batches[index]
            if batch.end_offset > end_offset or len(records) >= records_max:
                break
            records.extend(batch.records())
            end, epoch = batch.end_offset, batch.epoch
        if end == offset:
            return None
        if records and records[0].offset < offset:
            records = [record for record in records if record.offset >= offset]
        return CommittedGroup(tuple(records), end, epoch)

    def _index(self, offset: int) -> int | None:
        at = bisect_right(self._bases, offset) - 1
        if at < self._first or self._batches[at].end_offset <= offset:
            return None
        return at
