"""Suspends Python's full garbage collection while a large value is built, such as a catalogue or a
plan of 100,000 segments, or a broker's Metadata: none of its objects is garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

NEVER = 1_000_000_000
IN_A_ROW_MAX = 100
"""Limit of the blocks that begin before all blocks in progress have ended. Further blocks suspend
nothing, so that a process with ever overlapping blocks still collects its garbage.
"""
_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""An entry for each block in progress, with the thresholds before the first of them began."""
_in_a_row = 0


@contextmanager
def kept_objects() -> Iterator[None]:
    """Suspend the collection of the oldest generation in the whole process, which would take as
    long as making the objects; younger generations are collected as usual. Blocks of several
    threads may overlap.
    """
    if not _begin():
        yield
        return
    try:
        yield
    finally:
        with _lock:
            thresholds = _before.pop()
            if not _before:
                gc.set_threshold(*thresholds)


def _begin() -> bool:
    global _in_a_row
    with _lock:
        _in_a_row = _in_a_row + 1 if _before else 1
        if _in_a_row > IN_A_ROW_MAX:
            return False
        young, middle, old = _before[-1] if _before else gc.get_threshold()
        _before.append((young, middle, old))
        gc.set_threshold(young, middle, NEVER)
        return True
