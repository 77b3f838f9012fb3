"""Checks the batches of a segment against its metadata and its indexes.

The rules are those of a copy (`rlm.data_plane.segment_verification`, `rlm.data_plane.index_check`):
a segment copied by a node obeyed them then, so one that breaks them has changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_formats.batch_scan import BatchRun
from kafka_formats.errors import CorruptData
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.record_batch import LOG_OVERHEAD, TRANSACTIONAL_OR_CONTROL
from kafka_formats.time_index import TimeIndex
from pipeline.catalogue.tiered_segment import TieredSegment
from rlm.data_plane.index_check import IndexCheck
from rlm.data_plane.transaction_batches import tell
from rlm.data_plane.transaction_check import TransactionCheck
from rlm.local_log.gap_rule import shows_cleaner

Told = Callable[[str, int, int], None]
"""Called with the fault, its position and its offset in the log."""

_NEVER = 2**63


class LogCheck:
    """Checks verified batches in order, and reports faults to `told`. `cleaned`: offsets or
    records are missing as after Kafka's cleaner.
    """

    def __init__(
        self,
        segment: TieredSegment,
        source: str,
        told: Told,
        offset_index: bytes | None,
        time_index_: bytes | None,
        transactions: TransactionCheck | None = None,
    ) -> None:
        self._segment = segment
        self._source = source
        self._told = told
        self._stored_offsets, self._stored_times = offset_index, time_index_
        self._indexes = IndexCheck(segment.start_offset, lambda: offset_index, lambda: time_index_)
        self.transactions = transactions or TransactionCheck(segment.start_offset)
        self.cleaned = False
        self.next_offset = segment.start_offset
        self._epoch_at, self._epoch, self._epoch_end = 0, -1, _NEVER
        if segment.leader_epochs:
            self._enter_epoch(0)
        self._epochs_told = False
        self._offsets_legal = True

    def take(self, run: BatchRun) -> None:
        """Check the batches of a run."""
        next_offset, position, end_offset = self.next_offset, run.position, self._segment.end_offset
        for fields in run.headers:
            base_offset, length, epoch, _, _, attributes, delta, _, _, _, _, _, count = fields
            last_offset = base_offset + delta
            if base_offset != next_offset or shows_cleaner(attributes, delta, count):
                self.cleaned = True
            if base_offset < next_offset or last_offset > end_offset:
                self._offsets_legal = False
                self._told(
                    f"a batch has the offsets {base_offset} to {last_offset}, where only "
                    f"{next_offset} to {end_offset} are legal",
                    position,
                    base_offset,
                )
            else:  # a batch with illegal offsets does not move the expected one
                next_offset = last_offset + 1
                if epoch != self._epoch or last_offset >= self._epoch_end:
                    self._check_epoch(base_offset, last_offset, epoch, position)
            size = LOG_OVERHEAD + length
            if attributes & TRANSACTIONAL_OR_CONTROL:
                at = position - run.position
                try:
                    tell(self.transactions, run.data[at : at + size], self._source, position)
                except CorruptData as error:
                    self._told(error.detail, position, base_offset)
            position += size
        self.next_offset = next_offset
        self._indexes.take(run.headers, run.position)

    def largest_timestamp_differs(self) -> str | None:
        """Compare the largest timestamp of the whole log with the catalogue's: the difference, or
        None.
        """
        told, found = self._segment.max_timestamp_ms, self._indexes.max_timestamp_ms
        if found < 0 or told in (-1, found):
            return None  # for records without timestamps the metadata has the file's own time
        return f"the largest timestamp of its batches is {found}, but the metadata has {told}"

    def offset_index_differs(self) -> str | None:
        """The difference of the stored offset index from the batches, or None. Batches with illegal
        offsets allow no comparison.
        """
        stored = self._stored_offsets
        if stored is None:
            return "the offset index is missing"
        if not self._offsets_legal:
            return None
        made, kept = self._indexes.offset_index(), self._offsets(stored)
        if kept is not None and made == kept:
            return None
        return f"the offset index {_which_entry(stored, made, 8)} does not fit the batches"

    def time_index_differs(self) -> str | None:
        """Compare the time index with the log, as `offset_index_differs` does."""
        stored = self._stored_times
        if stored is None:
            return "the time index is missing"
        if not self._offsets_legal:
            return None
        made, kept = self._indexes.time_index(), self._times(stored)
        if kept is not None and made == kept:
            return None
        return f"the time index {_which_entry(stored, made, 12)} does not fit the batches"

    def _enter_epoch(self, number: int) -> None:
        epochs = self._segment.leader_epochs
        self._epoch_at, self._epoch = number, epochs[number].epoch
        after = number + 1
        self._epoch_end = epochs[after].start_offset if after < len(epochs) else _NEVER

    def _check_epoch(self, base_offset: int, last_offset: int, epoch: int, position: int) -> None:
        if not self._segment.leader_epochs:
            return
        while self._epoch_end <= base_offset:
            self._enter_epoch(self._epoch_at + 1)
        if epoch == self._epoch and last_offset < self._epoch_end:
            return
        # Below the log start offset the lineage may have lost its head.
        if epoch < self._epoch and last_offset < self._segment.first_offset:
            return
        if not self._epochs_told:
            self._epochs_told = True
            self._told(
                f"the batch has leader epoch {epoch}, but the metadata has {self._epoch}",
                position,
                base_offset,
            )

    def _offsets(self, stored: bytes) -> bytes | None:
        """The stored index without its preallocated tail; None if it can't be read."""
        try:
            base = self._segment.start_offset
            found = OffsetIndex.parse(stored, base_offset=base, source=self._source)
        except CorruptData:
            return None
        return stored[: len(found.entries) * 8]

    def _times(self, stored: bytes) -> bytes | None:
        try:
            base = self._segment.start_offset
            found = TimeIndex.parse(stored, base_offset=base, source=self._source)
        except CorruptData:
            return None
        return stored[: len(found.entries) * 12]


def _which_entry(stored: bytes, made: bytes, entry_bytes: int) -> str:
    """The first difference between two indexes, for a message."""
    count = min(len(stored), len(made)) // entry_bytes
    for number in range(count):
        at = number * entry_bytes
        if stored[at : at + entry_bytes] != made[at : at + entry_bytes]:
            return f"(entry {number} of {len(stored) // entry_bytes})"
    return f"({len(stored) // entry_bytes} entries, {len(made) // entry_bytes} expected)"
