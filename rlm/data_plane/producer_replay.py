"""Replays the batches of a segment into the state of its producers, as a broker does on recovery.

This rebuilds a missing producer snapshot, and feeds `TransactionCheck` with the transactions.
Source: Kafka's ProducerStateManager and ProducerAppendInfo.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from kafka_formats.batch_scan import BatchRun, ScannedBatch
from kafka_formats.errors import CorruptData
from kafka_formats.producer_snapshot import ProducerState, open_transactions
from kafka_formats.record_batch import (
    LOG_OVERHEAD,
    TRANSACTIONAL_OR_CONTROL,
    BatchHeader,
    ControlType,
    HeaderFields,
    control_record_type,
    iter_records,
)
from rlm.data_plane.transaction_check import TransactionCheck

_END_TRANSACTION = struct.Struct(">hi")
_SEQUENCES = 2**31
_NONE = -1
_LENGTH = BatchHeader._fields.index("length")
_ATTRIBUTES = BatchHeader._fields.index("attributes")
_PRODUCER_ID = BatchHeader._fields.index("producer_id")


class ProducerReplay:
    """Starts from the snapshot at a segment's base and takes the segment's batches in order.

    `producers` None: there is no snapshot. An empty snapshot proves nothing about transactions: a
    broker whose snapshots are missing at a clean start writes an empty one.
    """

    def __init__(self, producers: Iterable[ProducerState] | None, start_offset: int = 0) -> None:
        known = tuple(producers or ())
        self._producers = {producer.producer_id: producer for producer in known}
        self._last_plain: dict[int, HeaderFields] = {}
        relied_upon = producers is not None and (bool(known) or start_offset == 0)
        self.transactions = TransactionCheck(
            start_offset,
            open_transactions(known) if relied_upon else None,
            shown_empty=producers is not None,
        )

    @property
    def producers(self) -> tuple[ProducerState, ...]:
        """The content of a snapshot after the last batch."""
        self._settle()
        return tuple(self._producers.values())

    def take(self, run: BatchRun, source: str) -> None:
        """Replay consecutive verified batches."""
        at, data = 0, run.data
        producers, last = self._producers, self._last_plain
        for fields in run.headers:
            producer_id = fields[_PRODUCER_ID]
            end = at + LOG_OVERHEAD + fields[_LENGTH]
            if producer_id >= 0:
                if not fields[_ATTRIBUTES] & TRANSACTIONAL_OR_CONTROL and producer_id in producers:
                    last[producer_id] = fields
                else:
                    self._settle()
                    header = BatchHeader._make(fields)
                    if header.is_control:
                        batch = ScannedBatch(header, run.position + at, data[at:end])
                        self._end_transaction(batch, source)
                    else:
                        self._append(header)
            at = end

    def _settle(self) -> None:
        """Replay the plain batches that were put off; only the last one of each producer counts."""
        for fields in self._last_plain.values():
            self._append(BatchHeader._make(fields))
        self._last_plain.clear()

    def _append(self, header: BatchHeader) -> None:
        before = self._producers.get(header.producer_id)
        open_from = before.current_txn_first_offset if before else _NONE
        if header.is_transactional:
            self.transactions.has_batch(header.producer_id, header.base_offset)
            if open_from == _NONE:
                open_from = header.base_offset
        self._producers[header.producer_id] = ProducerState(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            last_sequence=_last_sequence(header),
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp_ms=header.max_timestamp,
            coordinator_epoch=before.coordinator_epoch if before else _NONE,
            current_txn_first_offset=open_from,
        )

    def _end_transaction(self, batch: ScannedBatch, source: str) -> None:
        header, position = batch.header, batch.position
        before = self._producers.get(header.producer_id)
        record = next(iter_records(batch.data, source=source, position=position), None)
        if record is None:  # compaction has removed the marker, and its transaction before it
            self.transactions.marker_gone(header.producer_id, header.last_offset)
            if before is not None:
                self._producers[header.producer_id] = replace(
                    before, current_txn_first_offset=_NONE
                )
            return
        type_ = control_record_type(record, source=source, position=position)
        if type_ not in (ControlType.ABORT, ControlType.COMMIT):
            return
        if record.value is None or len(record.value) < _END_TRANSACTION.size:
            raise CorruptData("a transaction marker is cut off", source=source, position=position)
        coordinator_epoch = _END_TRANSACTION.unpack_from(record.value)[1]
        if before is None or before.producer_epoch != header.producer_epoch:
            ended = _without_batches(header, before)
        else:
            ended = before
        self._producers[header.producer_id] = replace(
            ended,
            timestamp_ms=record.timestamp_ms,
            coordinator_epoch=coordinator_epoch,
            current_txn_first_offset=_NONE,
        )
        aborted = type_ == ControlType.ABORT
        self.transactions.ends(header.producer_id, record.offset, aborted=aborted)


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return _NONE
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def _without_batches(header: BatchHeader, before: ProducerState | None) -> ProducerState:
    """The state of a producer with a new epoch, in which its earlier batches no longer count."""
    return ProducerState(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        last_sequence=_NONE,
        last_offset=_NONE,
        offset_delta=0,
        timestamp_ms=_NONE,
        coordinator_epoch=before.coordinator_epoch if before else _NONE,
        current_txn_first_offset=before.current_txn_first_offset if before else _NONE,
    )
