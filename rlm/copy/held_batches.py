"""Reads batches of a held segment for a live one whose files vanished. Blocks: callers use a
thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafka_formats.batch_scan import BATCH_BYTES_MAX
from kafka_formats.record_batch import HEADER_BYTES
from rlm.data_plane.segment_survey import walkable_header

WINDOW_BYTES = 1 << 20
"""Bytes read at once. A larger batch comes whole."""


def batches_from(
    log: Path, at: int, position: int, batch_bytes_max: int = BATCH_BYTES_MAX
) -> tuple[bytes, int]:
    """The batches of a held `.log` from the first one that says it reaches offset `at`, and their
    position, at or behind `position`; and as much of the next one as says where it begins. Empty:
    none there, unreadable, or damage that can't be walked over before it, as is a length above
    `batch_bytes_max`.
    """
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b"", position
    try:
        size = os.fstat(descriptor).st_size
        while position < size:
            left = min(batch_bytes_max, size - position)
            header = walkable_header(descriptor, position, left, str(log))
            if header is None:
                break
            if header.last_offset >= at:
                wanted = max(header.size_bytes + HEADER_BYTES, WINDOW_BYTES)
                return os.pread(descriptor, wanted, position), position
            position += header.size_bytes
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return b"", position
