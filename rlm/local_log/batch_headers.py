"""Reads the headers of a `.log`'s batches, one after the other, without the records. Blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_formats.control_record import ControlType, parse_control_key
from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, iter_records, parse_header

CHUNK_BYTES = 1 << 20


def batch_headers(
    log: Path, *, zeros_may_follow: bool = False
) -> Iterator[tuple[BatchHeader, int]]:
    """Headers with their positions. CorruptData for an impossible header; `zeros_may_follow`:
    zeros from a position to the end of the file are accepted. OSError.
    """
    descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size, position = os.fstat(descriptor).st_size, 0
        while position < size:
            data = os.pread(descriptor, HEADER_BYTES, position)
            if zeros_may_follow and not any(data) and _are_zeros(descriptor, position):
                return
            header = parse_header(data, source=str(log), position=position)
            yield header, position
            position += header.size_bytes
    finally:
        os.close(descriptor)


def has_abort(log: Path) -> bool:
    """True if a marker in the `.log` aborts a transaction. CorruptData; OSError."""
    source = str(log)
    with log.open("rb") as file:
        for header, position in batch_headers(log, zeros_may_follow=True):
            if not (header.is_control and header.is_transactional):
                continue
            data = os.pread(file.fileno(), header.size_bytes, position)
            for record in iter_records(data, source=source, position=position):
                type_ = parse_control_key(record.key, source=source, position=position)
                if type_ == ControlType.ABORT:
                    return True
    return False


def _are_zeros(descriptor: int, position: int) -> bool:
    """True if the file has only zeros from `position` on."""
    while data := os.pread(descriptor, CHUNK_BYTES, position):
        if any(data):
            return False
        position += len(data)
    return True
