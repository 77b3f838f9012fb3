"""Feeds transactional and control batches of a log to `TransactionCheck`, and finds the
transactions that are open where the lineage cuts a segment. Pure.

A COMMIT is in no index, and the producer snapshot of a cut segment is that of its diverged end. So
its batches up to the cut decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.batch_scan import ANY_BATCH_BYTES, BatchScanner, ScannedBatch
from kafka_formats.crc32c import Buffer
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.record_batch import (
    ControlType,
    control_record_type,
    iter_records,
    parse_header,
)
from rlm.data_plane.transaction_check import TransactionCheck


def tell(check: TransactionCheck, data: Buffer, source: str, position: int) -> None:
    """Feed a verified batch of these two kinds to `check`; a batch with records may be only its
    header. CorruptData for a control batch that cannot be read.
    """
    header = parse_header(data, source=source, position=position)
    producer_id = header.producer_id
    if not header.is_control:
        check.has_batch(producer_id, header.base_offset)
        return
    record = next(iter_records(data, source=source, position=position), None)
    if record is None:
        check.marker_gone(producer_id, header.last_offset)
        return
    type_ = control_record_type(record, source=source, position=position)
    if type_ in (ControlType.ABORT, ControlType.COMMIT):
        check.ends(producer_id, record.offset, aborted=type_ == ControlType.ABORT)


class OpenAtCut:
    """Takes the bytes of a `.log` in order until `is_reached`, perhaps over several reads.
    `open_at_base` are all transactions open at its first offset; `valid_until` is the last offset
    (inclusive) below the cut.
    """

    def __init__(
        self, start_offset: int, open_at_base: Iterable[OpenTransaction], valid_until: int, log: str
    ) -> None:
        self._check = TransactionCheck(start_offset, open_at_base)
        self._next_offset = start_offset
        self._end = valid_until + 1
        self._log = log
        self._scanner = BatchScanner(log, batch_bytes_max=ANY_BATCH_BYTES)
        self._position = 0  # after the last batch taken
        self.is_reached = False

    def begin_read(self) -> int:
        """The position from which on the next read has to feed bytes."""
        at = self._position
        self._scanner = BatchScanner(self._log, batch_bytes_max=ANY_BATCH_BYTES, position=at)
        return at

    def feed(self, data: Buffer) -> None:
        """Take the next bytes. Raises CorruptData for a damaged batch below the cut."""
        for run in self._scanner.feed_runs(data):
            for batch in run.batches():
                if not self.is_reached:
                    self._take(batch)

    def _take(self, batch: ScannedBatch) -> None:
        header = batch.header
        if header.base_offset != self._next_offset or header.last_offset >= self._end:
            self.is_reached = True
            return
        if header.is_transactional or header.is_control:
            tell(self._check, batch.data, self._log, batch.position)
        self._next_offset = header.last_offset + 1
        self._position = batch.position + header.size_bytes
        self.is_reached = self._next_offset == self._end

    @property
    def open_count(self) -> int:
        """The number of transactions open by now, and one."""
        return 1 + len(self._check.open)

    @property
    def open(self) -> frozenset[OpenTransaction] | None:
        """The transactions open at the cut; None if offsets below it are missing, which may have
        had markers.
        """
        return self._check.open if self._next_offset == self._end else None
