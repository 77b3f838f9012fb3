"""Keeps Python's full garbage collection off while a large value is made, as a catalogue or a plan
of 100,000 segments, or a broker's Metadata: none of it is garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

NEVER = 1_000_000_000
IN_A_ROW_MAX = 100
"""The most blocks that begin before all of them have ended. Further ones suspend nothing, so that a
process in which blocks never cease to overlap collects its garbage in the end.
"""
_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""One entry for each block in progress: the thresholds before the first of them began."""
_in_a_row = 0


@contextmanager
def kept_objects() -> Iterator[None]:
    """Suspends collection of the oldest generation, which would take as long as making the objects;
    young objects are collected as always. For the whole process; threads may overlap.
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
