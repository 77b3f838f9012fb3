"""Metrics of the node's rate limits, like Kafka's remote-copy-throttle-time."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import Flow

NAMES = {Flow.COPY: "remote_copy", Flow.READ: "remote_fetch"}
"""Names of the two directions, as in Kafka's metrics."""


class FlowMetrics(Collector):
    """Metrics that are read from the limits at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._flow: FlowControl | None = None
        registry.register(self)

    def watch(self, flow: FlowControl) -> None:
        """Read from `flow` from now on; until then all values are zero."""
        self._flow = flow

    def collect(self) -> Iterator[Metric]:
        """The metrics of both directions."""
        for flow, name in NAMES.items():
            limit = None if self._flow is None else self._flow.limits.node.of(flow)
            yield GaugeMetricFamily(
                f"strandline_{name}_limit_bytes_per_second",
                "The node's rate limit; 0 without one.",
                value=limit or 0,
            )
            yield GaugeMetricFamily(
                f"strandline_{name}_throttled",
                "Requests that wait for a rate limit now.",
                value=0 if self._flow is None else self._flow.waiting(flow),
            )
            yield CounterMetricFamily(
                f"strandline_{name}_throttle_seconds",
                "Total time that requests waited for a rate limit.",
                value=0.0 if self._flow is None else self._flow.waited_s(flow),
            )
