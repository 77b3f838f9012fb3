"""Consumers in small: each drops aborted batches by an answer's list as one client does."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.batch_scan import ScannedBatch, scan
from kafka_formats.control_record import ControlType
from kafka_formats.record_batch import control_record_type, iter_records

Aborted = tuple[int, int]


def java(data: bytes, aborted: Iterable[Aborted]) -> list[int]:
    """Offsets that Kafka's consumer gives out (CompletedFetch)."""
    queue = sorted(aborted, key=lambda each: each[1])
    dropping: set[int] = set()
    kept: list[int] = []
    for batch in scan(data, source="answer"):
        while queue and queue[0][1] <= batch.header.last_offset:
            dropping.add(queue.pop(0)[0])
        if batch.header.is_control:
            if _aborts(batch):
                dropping.discard(batch.header.producer_id)
        elif not (batch.header.is_transactional and batch.header.producer_id in dropping):
            kept += _offsets(batch)
    return kept


def franz(data: bytes, aborted: Iterable[Aborted]) -> list[int]:
    """Offsets that franz-go gives out. It takes one entry for each ABORT marker that it meets, and
    panics where there is none.
    """
    first_offsets: dict[int, list[int]] = {}
    for producer_id, first in sorted(aborted, key=lambda each: each[1]):
        first_offsets.setdefault(producer_id, []).append(first)
    kept: list[int] = []
    for batch in scan(data, source="answer"):
        entries = first_offsets.get(batch.header.producer_id, [])
        if batch.header.is_control:
            if _aborts(batch):
                assert entries, "an ABORT marker without an entry"
                entries.pop(0)
        elif not (
            batch.header.is_transactional and entries and batch.header.base_offset >= entries[0]
        ):
            kept += _offsets(batch)
    return kept


def _aborts(batch: ScannedBatch) -> bool:
    (record,) = iter_records(batch.data, source="answer", position=0)
    return control_record_type(record) == ControlType.ABORT


def _offsets(batch: ScannedBatch) -> list[int]:
    return list(range(batch.header.base_offset, batch.header.last_offset + 1))
