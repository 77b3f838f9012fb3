"""Metrics of damaged and repaired segments."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from rlm.control.run_events import CopyEvent, SegmentRepaired
from rlm.repair.repairs import Repairs


class RepairMetrics:
    """A counter fed by events, and gauges that are read at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._repaired = Counter(
            "strandline_segments_repaired",
            "Damaged segments that were copied again from an undamaged copy.",
            registry=registry,
        )
        self._damaged = gauge(
            "strandline_damaged_segments",
            "Segments that reads or repairs found damaged and that are not repaired yet.",
        )
        self._unrepairable = gauge(
            "strandline_unrepairable_segments",
            "Damaged segments without any known undamaged copy: alert on it.",
        )

    def on_event(self, event: CopyEvent) -> None:
        """Count a repaired segment."""
        if isinstance(event, SegmentRepaired):
            self._repaired.inc()

    def watch(self, repairs: Repairs) -> None:
        """Read from `repairs` at each scrape from now on."""
        self._damaged.set_function(lambda: repairs.damaged)
        self._unrepairable.set_function(lambda: repairs.unrepairable)
