"""Metrics of a read replica's clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """The counters of the listener. `requests` by the name of Kafka's API, `broken_off` by
    reason.
    """

    connections: int = 0
    replicas_told: int = 0
    replicas_silent: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    tier_bytes: int = 0
    broker_bytes: int = 0
    not_available: int = 0
    lost_range: int = 0
    refusals: int = 0
    broken_off: Mapping[str, int] = field(default_factory=dict)


class ReadMetrics(Collector):
    """Metrics that are read from the listener at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._figures: Callable[[], ReadFigures] = ReadFigures
        registry.register(self)

    def watch(self, figures: Callable[[], ReadFigures]) -> None:
        """Read from `figures` from now on; until then all values are zero."""
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Connections, requests, bytes by source, and answers that make a client wait."""
        now = self._figures()
        yield GaugeMetricFamily(
            "strandline_read_connections",
            "Kafka clients' connections to the read listener.",
            value=now.connections,
        )
        replicas = GaugeMetricFamily(
            "strandline_read_replicas",
            "Registered read replicas: clients are sent to live ones (told), not to fenced ones "
            "(silent).",
            labels=["state"],
        )
        replicas.add_metric(["told"], now.replicas_told)
        replicas.add_metric(["silent"], now.replicas_silent)
        yield replicas
        requests = CounterMetricFamily(
            "strandline_read_requests", "Requests of Kafka clients, by API.", labels=["api"]
        )
        for api, count in sorted(now.requests.items()):
            requests.add_metric([api], count)
        yield requests
        sent = CounterMetricFamily(
            "strandline_read_bytes",
            "Bytes of record batches sent to Kafka clients, by source.",
            labels=["source"],
        )
        sent.add_metric(["tier"], now.tier_bytes)
        sent.add_metric(["broker"], now.broker_bytes)
        yield sent
        for name, text, count in (
            (
                "not_available",
                "Answers that offsets are not available now, so that the client asks again.",
                now.not_available,
            ),
            (
                "lost_range",
                "Answers to requests for offsets in a recorded lost range.",
                now.lost_range,
            ),
            ("refused", "Refused requests and connections.", now.refusals),
        ):
            yield CounterMetricFamily(f"strandline_read_{name}", text, value=count)
        broken_off = CounterMetricFamily(
            "strandline_read_broken_off",
            "Connections that ended without their complete answer, by reason.",
            labels=["reason"],
        )
        for reason, count in sorted(now.broken_off.items()):
            broken_off.add_metric([reason], count)
        yield broken_off
