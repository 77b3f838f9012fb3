"""Metrics of segments on their way from a broker whose disk the node does not see."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from rlm.delegated.spool import Spool


class SpoolMetrics:
    """A counter that the spool feeds, and a gauge that is read at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "strandline_spool_refused_segments",
            "Segments of the broker that there was no room for: alert on it.",
            registry=registry,
        )
        self._bytes = Gauge(
            "strandline_spool_bytes",
            "Bytes of the segments that the broker sends, or that are copied from there.",
            registry=registry,
        )

    def watch(self, spool: Spool) -> None:
        """Count for `spool` from now on."""
        spool.on_refused = self._refused.inc
        self._bytes.set_function(lambda: spool.taken_bytes)
