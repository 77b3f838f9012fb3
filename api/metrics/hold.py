"""Metrics of segments held back from the broker's local retention, and of those let go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from rlm.control.run_events import CopyEvent, HoldReleased
from rlm.copy.hold import HoldUsage


class HoldMetrics:
    """Counters fed by events; gauges that are read at each scrape, 0 where nothing is held."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._released = counter(
            "strandline_hold_released_segments", "Held segments let go, by reason.", ["why"]
        )
        self._missed = counter(
            "strandline_hold_missed_bytes",
            "Bytes let go that were not copied and that the broker no longer has: alert on it.",
        )
        self._segments = gauge("strandline_hold_segments", "Segments held by hard links.")
        self._bytes = gauge("strandline_hold_bytes", "Their bytes.")
        self._alone = gauge(
            "strandline_hold_alone_bytes",
            "Those of them that the broker has deleted; the budget counts these.",
        )

    def on_event(self, event: CopyEvent) -> None:
        """Count what was let go."""
        if isinstance(event, HoldReleased):
            self._released.labels(event.why).inc()
            if event.missed:
                self._missed.inc(event.size_bytes)

    def read_from(self, usage: Callable[[], HoldUsage]) -> None:
        """Ask `usage` at each scrape from now on."""
        self._segments.set_function(lambda: usage().units)
        self._bytes.set_function(lambda: usage().size_bytes)
        self._alone.set_function(lambda: usage().alone_bytes)
