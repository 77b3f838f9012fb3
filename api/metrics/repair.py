"""Segments that are damaged, of which nothing has a whole copy, and that were mended."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from rlm.control.run_events import CopyEvent, SegmentRepaired


class KnownDamage(Protocol):
    """Met by `rlm.repair.repairs.Repairs`."""

    @property
    def damaged(self) -> int:
        """Damaged segments that this node knows of and that stand."""
        ...

    @property
    def unrepairable(self) -> int:
        """Those of which nothing has a whole copy."""
        ...


class RepairMetrics:
    """The counter is fed by events; gauges ask at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._repaired = Counter(
            "strandline_segments_repaired",
            "Damaged segments that were copied anew from a whole copy.",
            registry=registry,
        )
        self._damaged = Gauge(
            "strandline_damaged_segments",
            "Segments that reads or repairs found damaged, and that stand.",
            registry=registry,
        )
        self._unrepairable = Gauge(
            "strandline_unrepairable_segments",
            "Those of which nothing known has a whole copy: alert on it.",
            registry=registry,
        )

    def on_event(self, event: CopyEvent) -> None:
        """Count what was mended."""
        if isinstance(event, SegmentRepaired):
            self._repaired.inc()

    def watch(self, known: KnownDamage) -> None:
        """Ask at each scrape from now on."""
        self._damaged.set_function(lambda: known.damaged)
        self._unrepairable.set_function(lambda: known.unrepairable)
