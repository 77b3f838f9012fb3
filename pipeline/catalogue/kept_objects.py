"""While a catalogue or a plan is made: a hundred thousand segments, none of which is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

NEVER = 1_000_000_000
_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""Of each that is under way, what there was when the first of them began."""


@contextmanager
def kept_objects() -> Iterator[None]:
    """Without looking for garbage among what has been there for a while, which takes as long as to
    make it; what is young is looked through as ever. For the whole process, by several threads too.
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
