"""Gauges of the copy lag, for the node and the topics furthest behind.

Kafka's RemoteCopyLagBytes and RemoteCopyLagSegments (KIP-963), and the age of the lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge

from rlm.copy.lag import Lag, summed, worst_topics
from rlm.copy.partition_status import PartitionStatus

LAG_TOPICS_MAX = 32
"""The number of topics with gauges of their own; the rest is only in the sum."""


class LagMetrics:
    """Gauges set at each scrape; a partition is counted on the node beside its leader."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._whole = tuple(
            Gauge(f"strandline_remote_copy_lag_{unit}", what, registry=registry)
            for unit, what in _GAUGES
        )
        self._by_topic = tuple(
            Gauge(
                f"strandline_topic_remote_copy_lag_{unit}",
                f"{what} By topic, for those furthest behind.",
                ["topic"],
                registry=registry,
            )
            for unit, what in _GAUGES
        )

    def set_partitions(self, statuses: Iterable[PartitionStatus]) -> None:
        """Set the sums of sizes, and the age of the oldest segment."""
        lags: dict[str, list[Lag]] = {}
        for status in statuses:
            if status.lag is not None:
                lags.setdefault(status.partition.topic, []).append(status.lag)
        self._set({topic: summed(each) for topic, each in lags.items()})

    def _set(self, topics: Mapping[str, Lag]) -> None:
        for gauge, value in zip(self._whole, _values(summed(topics.values())), strict=True):
            gauge.set(value)
        for gauge in self._by_topic:
            gauge.clear()
        for topic, each in worst_topics(topics, LAG_TOPICS_MAX).items():
            for gauge, value in zip(self._by_topic, _values(each), strict=True):
                gauge.labels(topic).set(value)


_GAUGES = (
    ("bytes", "Sealed bytes not copied yet."),
    ("segments", "Sealed segments not copied yet."),
    ("seconds", "Age of the oldest sealed segment not copied yet, since it was sealed."),
    (
        "gone_offsets",
        "Offsets at or above the tier's next offset that are gone from the local log: alert on it.",
    ),
)


def _values(lag: Lag) -> tuple[float, float, float, float]:
    return lag.size_bytes, lag.segments, lag.age_ms / 1_000, lag.gone_offsets
