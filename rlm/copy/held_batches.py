"""Reads batches of a held segment for a live one whose files vanished. Blocks: callers use a
thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from rlm.data_plane.segment_survey import is_good, walkable_header

WINDOW_BYTES = 1 << 20
"""Bytes read at once. A larger batch comes whole."""


def batches_from(log: Path, at: int, position: int) -> tuple[bytes, int]:
    """The batches of a held `.log` from offset `at` on, or from the next good one behind it, and
    their position, at or behind `position`. Empty: none there, unreadable, or damage in between.
    """
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b"", position
    try:
        size = os.fstat(descriptor).st_size
        while position < size:
            header = walkable_header(descriptor, position, size, str(log))
            if header is None:
                break
            if header.last_offset >= at:
                wanted = max(header.size_bytes, WINDOW_BYTES)
                data = os.pread(descriptor, wanted, position)
                if is_good(data[: header.size_bytes], header, str(log)):
                    return data, position
            position += header.size_bytes
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return b"", position
