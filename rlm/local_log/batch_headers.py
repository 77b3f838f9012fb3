"""Reads the headers of a `.log`'s batches, one after the other, without the records. Blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_formats.record_batch import HEADER_BYTES, BatchHeader, parse_header


def batch_headers(log: Path) -> Iterator[tuple[BatchHeader, int]]:
    """Headers with their positions. CorruptData where a header can't be; OSError."""
    descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size, position = os.fstat(descriptor).st_size, 0
        while position < size:
            data = os.pread(descriptor, HEADER_BYTES, position)
            header = parse_header(data, source=str(log), position=position)
            yield header, position
            position += header.size_bytes
    finally:
        os.close(descriptor)
