"""Figures of a read replica, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from api.metrics.read import ReadFigures, ReadMetrics
from kafka_listener.connections.read_counts import BrokenOff, ReadCounts


def test_connections_that_ended_in_place_of_an_answer_are_counted_by_reason() -> None:
    """A reason that has not come yet is there, so that the first one is an increase."""
    counts = ReadCounts(lambda: 0.0)
    counts.broke_off("a client", BrokenOff.BROKER, "its broker did not answer")
    registry = CollectorRegistry()
    ReadMetrics(registry).watch(lambda: ReadFigures(broken_off=counts.broken_off))
    told = [
        line
        for line in generate_latest(registry).decode().splitlines()
        if line.startswith("strandline_read_broken_off_total")
    ]
    assert told == [
        'strandline_read_broken_off_total{reason="broker"} 1.0',
        'strandline_read_broken_off_total{reason="not_taken"} 0.0',
        'strandline_read_broken_off_total{reason="tier"} 0.0',
    ]
