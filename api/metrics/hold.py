"""What is held back from local retention, and what was let go (design 6.5)."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from rlm.control.run_events import CopyEvent, HoldReleased
from rlm.copy.hold import HoldUsage


class HoldMetrics:
    """Counters are fed by events; gauges ask at each scrape, and stay 0 where nothing is held."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._released = Counter(
            "strandline_hold_released_segments",
            "Held segments let go, by reason.",
            ["why"],
            registry=registry,
        )
        self._missed = Counter(
            "strandline_hold_missed_bytes",
            "Bytes let go that were not copied and that the broker no longer has: alert on it.",
            registry=registry,
        )
        self._segments = Gauge(
            "strandline_hold_segments", "Segments held by hard links.", registry=registry
        )
        self._bytes = Gauge("strandline_hold_bytes", "Their bytes.", registry=registry)
        self._alone = Gauge(
            "strandline_hold_alone_bytes",
            "Those of them that the broker has deleted; the budget counts these.",
            registry=registry,
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
