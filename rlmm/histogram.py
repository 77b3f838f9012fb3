"""Counts of durations by upper bound, in plain lists: a scrape converts them to the form of a
metrics library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip


class Histogram:
    """Counts by upper bound, as in Prometheus; `counts` has one more entry for the rest."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def latencies() -> Histogram:
    """An empty histogram of seconds, with bounds from 0.1 ms to 10 s."""
    return Histogram(LATENCY_SECONDS)
