"""Reads batches of a held segment, to fill holes in a damaged segment of the live log. Blocks:
callers use a thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from kafka_formats.batch_scan import BATCH_BYTES_MAX
from kafka_formats.record_batch import HEADER_BYTES
from rlm.data_plane.segment_survey import walkable_header

WINDOW_BYTES = 1 << 20
"""Bytes read at once; a batch that is larger is read whole."""


def batches_from(
    log: Path, at: int, position: int, batch_bytes_max: int = BATCH_BYTES_MAX
) -> tuple[bytes, int]:
    """The batches of a held `.log` from the first one at or after `position` whose header reaches
    offset `at`, and their position; at least the header of the batch after the first is included.
    Empty: there is no such batch, the file is unreadable, or a damaged header comes first (a length
    above `batch_bytes_max` counts as damage).
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
