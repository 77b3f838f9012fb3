"""Metrics of the workers' chunk caches and of reading ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlm.data_plane.chunk_cache import ChunkCounts


class ChunkFigures(Protocol):
    """Figures of the worker pool, as of its workers' last heartbeats."""

    def chunk_counts(self) -> ChunkCounts:
        """Counts since the node's start."""

    def chunk_bytes_held(self) -> int:
        """Bytes in the caches now."""


class CacheMetrics(Collector):
    """Metrics that are read from the pool at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._figures: ChunkFigures | None = None
        registry.register(self)

    def watch(self, figures: ChunkFigures) -> None:
        """Read from `figures` from now on; before that all is zero."""
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Look-ups by outcome, bytes held, and the outcome of reading ahead."""
        figures = self._figures
        counts = ChunkCounts() if figures is None else figures.chunk_counts()
        lookups = CounterMetricFamily(
            "strandline_chunk_cache_lookups",
            "Chunks readers looked for: hit, miss, or shared (another reader was fetching it).",
            labels=["outcome"],
        )
        lookups.add_metric(["hit"], counts.hits)
        lookups.add_metric(["miss"], counts.misses)
        lookups.add_metric(["shared"], counts.shared)
        yield lookups
        yield GaugeMetricFamily(
            "strandline_chunk_cache_bytes",
            "Bytes of chunks that the workers keep.",
            value=0 if figures is None else figures.chunk_bytes_held(),
        )
        ahead = CounterMetricFamily(
            "strandline_read_ahead",
            "Fetches for the next segment of a read: used, or wasted (the read ended before).",
            labels=["outcome"],
        )
        ahead.add_metric(["used"], counts.ahead_used)
        ahead.add_metric(["wasted"], counts.ahead_wasted)
        yield ahead
