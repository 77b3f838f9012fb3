"""A segment's transaction index held against the transactions that its log shows."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_formats.crc32c import Buffer
from kafka_formats.record_batch import (
    ControlType,
    control_record_type,
    iter_records,
    parse_header,
)
from kafka_formats.transaction_index import AbortedTransaction


class TransactionCheck:
    """Takes the transactional and the control batches of a log in order; `source` names it."""

    def __init__(self, start_offset: int, source: str) -> None:
        self._start_offset = start_offset
        self._source = source
        self._open_from: dict[int, int] = {}  # producer id -> first offset seen of its transaction
        self._ended: set[int] = set()  # producer ids of which a marker was seen
        # (producer id, marker) -> first offset seen, and whether it began in this segment
        self._aborts: dict[tuple[int, int], tuple[int | None, bool]] = {}

    def take(self, data: Buffer, position: int) -> None:
        """A verified batch, of one with records its header at least. CorruptData: a control batch
        that cannot be read.
        """
        header = parse_header(data, source=self._source, position=position)
        producer_id = header.producer_id
        if not header.is_control:
            self._open_from.setdefault(producer_id, header.base_offset)
            return
        record = next(iter_records(data, source=self._source, position=position), None)
        if record is None:
            self._open_from.pop(producer_id, None)
            return
        type_ = control_record_type(record, source=self._source, position=position)
        if type_ in (ControlType.ABORT, ControlType.COMMIT):
            first = self._open_from.pop(producer_id, None)
            if type_ == ControlType.ABORT:
                self._aborts[producer_id, record.offset] = (first, producer_id in self._ended)
            self._ended.add(producer_id)

    def differences(self, entries: tuple[AbortedTransaction, ...]) -> Iterator[str]:
        """What is wrong with each entry of the index, and each that is not in it."""
        listed = set()
        for entry in entries:
            key = (entry.producer_id, entry.last_offset)
            listed.add(key)
            if key not in self._aborts:
                yield (
                    f"the transaction index lists an ABORT of producer {entry.producer_id} at "
                    f"offset {entry.last_offset}, and the log has none there"
                )
                continue
            first, begins_here = self._aborts[key]
            known = begins_here or entry.first_offset >= self._start_offset
            if known and entry.first_offset != first:
                yield (
                    f"the transaction index says that the transaction aborted at offset "
                    f"{entry.last_offset} begins at {entry.first_offset}, and it does not"
                )
        for (producer_id, marker), (first, _) in self._aborts.items():
            # An ABORT of a transaction without records is in no index.
            if first is not None and (producer_id, marker) not in listed:
                yield (
                    f"the log has an ABORT of producer {producer_id} at offset {marker}, and the "
                    "transaction index does not list it: its records look committed"
                )
