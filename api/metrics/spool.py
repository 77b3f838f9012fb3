"""Metrics of segments on their way from a broker whose disk the node does not see."""

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
        """Read from `spool` from now on; before that all is zero."""
        self._spool = spool

    def collect(self) -> Iterator[Metric]:
        """The metrics of the spool."""
        yield CounterMetricFamily(
            "strandline_spool_refused_segments",
            "Segments of the broker that there was no room for: alert on it.",
            value=0 if self._spool is None else self._spool.refused,
        )
        yield GaugeMetricFamily(
            "strandline_spool_bytes",
            "Bytes of the segments that the broker sends, or that are copied from there.",
            value=0 if self._spool is None else self._spool.taken_bytes,
        )
