"""Keeps Python's full garbage collection off while a large value is made, as a catalogue or a plan
of 100,000 segments, or a broker's Metadata: none of it is garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

NEVER = 1_000_000_000
_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""One entry for each block in progress: the thresholds before the first of them began."""


@contextmanager
def kept_objects() -> Iterator[None]:
    """Suspends collection of the oldest generation, which would take as long as making the objects;
    young objects are collected as always. For the whole process; threads may overlap.
    """
    with _lock:
        young, middle, old = _before[-1] if _before else gc.get_threshold()
        _before.append((young, middle, old))
        gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        with _lock:
            thresholds = _before.pop()
            if not _before:
                gc.set_threshold(*thresholds)
