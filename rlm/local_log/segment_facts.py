"""Finds the content of a segment's COPY_SEGMENT_STARTED without reading the segment."""

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
    """`leader_epochs` are the lineage's inside, the first moved to the base or the log start."""

    size_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool
    leader_epochs: Epochs


def segment_facts(segment: LocalSegment, lineage: Epochs) -> SegmentFacts:
    """Look at a sealed segment. Blocks for a few file reads; callers use an executor.

    Records below its first known offset have no epoch: DeleteRecords took them, the broker's
    checkpoint lost the epochs, and the lineage may have another leader's. Conflict(SOURCE_CHANGED):
    its files are gone. InvalidRequest: it is the active segment.
    """
    if segment.next_base_offset is None:
        raise InvalidRequest("the active segment is never copied", field="segment")
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
    """The lineage's entries in [base, next base); InvalidRequest without any."""
    entries = entries_in_range(lineage, base_offset, next_base_offset)
    if not entries:
        raise InvalidRequest(
            f"the leader epoch lineage has no entry below offset {next_base_offset}",
            field="leader_epochs",
        )
    return (entries[0]._replace(start_offset=base_offset), *entries[1:])


def _max_timestamp(segment: LocalSegment, modified_ms: int) -> int:
    """The last entry of the time index; without one the modification time, as in Kafka."""
    path = segment.log_path.with_suffix(".timeindex")
    try:
        index = TimeIndex.parse(_tail(path), base_offset=segment.base_offset, source=str(path))
    except (FileNotFoundError, CorruptData):
        return modified_ms
    return modified_ms if index.last[0] < 0 else index.last[0]


def _tail(path: Path) -> bytes:
    """The last entry; the whole file if that is empty (a preallocated one)."""
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
