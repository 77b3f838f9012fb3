"""Durations of the metadata manager: KIP-595's and ours, for metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlmm.histogram import Histogram, latencies


@dataclass(slots=True)
class MetadataStats:
    """The durations. `apply_latency`: from the time when this node's high watermark covered the
    records until they can be read here. `proposal_latency`: the wait of a caller of this node until
    the outcome was known; a caller that got none counts, too. `now`: monotonic seconds, by the
    log's clock.
    """

    now: Callable[[], float]
    apply_latency: Histogram = field(default_factory=latencies)
    proposal_latency: Histogram = field(default_factory=latencies)

    def applied(self, advanced_s: float | None) -> None:
        """Record that a group is applied. `advanced_s`: when this node learned that its first
        record is committed; None for later groups of the same commit.
        """
        if advanced_s is not None:
            self.apply_latency.observe(max(self.now() - advanced_s, 0.0))

    @contextmanager
    def proposing(self) -> Iterator[None]:
        """A context around a caller's wait."""
        began_s = self.now()
        try:
            yield
        finally:
            self.proposal_latency.observe(self.now() - began_s)
