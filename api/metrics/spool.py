"""Metrics of segments received from a broker whose disk the node does not see."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlm.delegated.spool import Spool


class SpoolMetrics(Collector):
    """Metrics that are read from the spool at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._spool: Spool | None = None
        registry.register(self)

    def watch(self, spool: Spool) -> None:
        """Read from `spool` from now on; until then all values are zero."""
        self._spool = spool

    def collect(self) -> Iterator[Metric]:
        """The metrics of the spool."""
        yield CounterMetricFamily(
            "strandline_spool_refused_segments",
            "Segments of the broker that were refused for lack of room: alert on it.",
            value=0 if self._spool is None else self._spool.refused,
        )
        yield GaugeMetricFamily(
            "strandline_spool_bytes",
            "Bytes reserved for segments that the broker is sending, or that are being copied "
            "from the spool.",
            value=0 if self._spool is None else self._spool.taken_bytes,
        )
