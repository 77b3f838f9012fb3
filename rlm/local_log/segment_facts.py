"""Collects the fields of a segment's COPY_SEGMENT_STARTED record without reading the segment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import Conflict, CorruptData, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs, entries_in_range
from kafka_formats.time_index import TimeIndex
from rlm.local_log.log_dir import LocalSegment
from rlm.local_log.replica_directory import read_small

_TIME_ENTRY_BYTES = 12


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts of one segment. `leader_epochs` are the lineage's entries within it, the first moved to
    the segment's base or, if that is higher, its first known offset.
    """

    size_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool
    leader_epochs: Epochs


def segment_facts(segment: LocalSegment, lineage: Epochs) -> SegmentFacts:
    """Read the facts of a sealed segment. Blocks for a few file reads; callers use an executor.

    Records below its first known offset get no epoch: DeleteRecords removed them, the broker's
    checkpoint lost their epochs, and the lineage may have a different leader's there.
    Conflict(SOURCE_CHANGED): its files are gone. InvalidRequest: it is the active segment.
    """
    if segment.next_base_offset is None:
        raise InvalidRequest(
            f"{segment.log_path} is the active segment, which is never copied: name a sealed one",
            field="segment",
        )
    first_offset = max(segment.base_offset, segment.first_known_offset)
    epochs = segment_epochs(lineage, first_offset, segment.next_base_offset)
    try:
        status = segment.log_path.stat()
        return SegmentFacts(
            size_bytes=status.st_size,
            max_timestamp_ms=_max_timestamp(segment, status.st_mtime_ns // 1_000_000),
            txn_index_empty=_is_empty(segment.log_path.with_suffix(".txnindex")),
            leader_epochs=epochs,
        )
    except OSError as error:
        raise Conflict(
            f"{segment.log_path} cannot be read any more: {error.strerror}", reason="SOURCE_CHANGED"
        ) from error


def segment_epochs(lineage: Epochs, base_offset: int, next_base_offset: int) -> Epochs:
    """The lineage's entries in [base, next base); InvalidRequest if there are none."""
    entries = entries_in_range(lineage, base_offset, next_base_offset)
    if not entries:
        raise InvalidRequest(
            f"the leader epoch lineage has no entry below offset {next_base_offset}",
            field="leader_epochs",
        )
    return (entries[0]._replace(start_offset=base_offset), *entries[1:])


def _max_timestamp(segment: LocalSegment, modified_ms: int) -> int:
    """The timestamp of the time index's last entry; without one the modification time, as in
    Kafka.
    """
    path = segment.log_path.with_suffix(".timeindex")
    try:
        index = TimeIndex.parse(_tail(path), base_offset=segment.base_offset, source=str(path))
    except (FileNotFoundError, CorruptData):
        return modified_ms
    return modified_ms if index.last[0] < 0 else index.last[0]


def _tail(path: Path) -> bytes:
    """The bytes of the last entry; the whole file if that entry is zeros (a preallocated file)."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        last = max(0, (size // _TIME_ENTRY_BYTES - 1) * _TIME_ENTRY_BYTES)
        tail = os.pread(file.fileno(), _TIME_ENTRY_BYTES, last)
    return tail if any(tail) else read_small(path)


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True
