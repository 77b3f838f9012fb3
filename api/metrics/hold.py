"""Metrics of segments held back from the broker's local retention, and of those released."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from rlm.control.run_events import CopyEvent, HoldReleased
from rlm.copy.hold import HoldUsage


class HoldMetrics:
    """Counters fed by events; gauges that are read at each scrape, 0 if no segment is held."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._released = counter(
            "strandline_hold_released_segments",
            "Held segments that were released, by reason.",
            ["why"],
        )
        self._missed = counter(
            "strandline_hold_missed_bytes",
            "Bytes of released segments that were not copied and that the broker no longer has: "
            "alert on it.",
        )
        self._segments = gauge("strandline_hold_segments", "Segments held by hard links.")
        self._bytes = gauge("strandline_hold_bytes", "Bytes of the held segments.")
        self._alone = gauge(
            "strandline_hold_alone_bytes",
            "Bytes of held segments that the broker has deleted; the budget counts these.",
        )

    def on_event(self, event: CopyEvent) -> None:
        """Count a released segment."""
        if isinstance(event, HoldReleased):
            self._released.labels(event.why).inc()
            if event.missed:
                self._missed.inc(event.size_bytes)

    def read_from(self, usage: Callable[[], HoldUsage]) -> None:
        """Read `usage` at each scrape from now on."""
        self._segments.set_function(lambda: usage().units)
        self._bytes.set_function(lambda: usage().size_bytes)
        self._alone.set_function(lambda: usage().alone_bytes)
