"""The lag of Kafka's own metadata topic behind the metadata log, after a move."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlmm.metadata_shadow import Shadow, ShadowLag


class ShadowMetrics(Collector):
    """The metric families, without samples while the topic is not kept up to date."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag: ShadowLag | None = None
        self._shadow: Shadow | None = None
        self._now_ms = 0
        registry.register(self)

    def set(self, shadow: Shadow | None, lag: ShadowLag | None, now_ms: int) -> None:
        """Set the state as of this node's view, for this scrape."""
        self._shadow, self._lag, self._now_ms = shadow, lag, now_ms

    def collect(self) -> Iterator[Metric]:
        records = GaugeMetricFamily(
            "strandline_shadow_lag_records", "Changes that are not in Kafka's metadata topic yet."
        )
        seconds = GaugeMetricFamily(
            "strandline_shadow_lag_seconds",
            "Age of the oldest change that is not in Kafka's metadata topic yet; 0 if there is "
            "none.",
        )
        incomplete = GaugeMetricFamily(
            "strandline_shadow_incomplete",
            "1 if the topic lacks changes for good, so that the move cannot be undone.",
        )
        foreign = GaugeMetricFamily(
            "strandline_shadow_foreign",
            "1 if a different writer wrote to the topic; no segment is deleted then.",
        )
        if self._lag is not None:
            oldest_ms = self._lag.oldest_ms
            age_ms = 0 if oldest_ms is None else max(0, self._now_ms - oldest_ms)
            records.add_metric([], self._lag.records)
            seconds.add_metric([], age_ms / 1_000)
        if self._shadow is not None:
            incomplete.add_metric([], bool(self._shadow.incomplete))
            foreign.add_metric([], bool(self._shadow.foreign))
        yield from (records, seconds, incomplete, foreign)
