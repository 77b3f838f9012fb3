"""Metrics of the workers' chunk caches and of reading ahead."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlm.data_plane.chunk_cache import ChunkCounts
from rlm.worker.pool import WorkerPool


class CacheMetrics(Collector):
    """Metrics that are read from the pool at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pool: WorkerPool | None = None
        registry.register(self)

    def watch(self, pool: WorkerPool) -> None:
        """Read from `pool` from now on; until then all values are zero."""
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Look-ups by outcome, bytes kept, and the outcome of reading ahead."""
        pool = self._pool
        counts = ChunkCounts() if pool is None else pool.chunk_counts()
        lookups = CounterMetricFamily(
            "strandline_chunk_cache_lookups",
            "Chunks that readers looked up: hit, miss, or shared (a different reader was "
            "fetching it).",
            labels=["outcome"],
        )
        lookups.add_metric(["hit"], counts.hits)
        lookups.add_metric(["miss"], counts.misses)
        lookups.add_metric(["shared"], counts.shared)
        yield lookups
        yield GaugeMetricFamily(
            "strandline_chunk_cache_bytes",
            "Bytes of chunks that the workers keep.",
            value=0 if pool is None else pool.chunk_bytes_held(),
        )
        ahead = CounterMetricFamily(
            "strandline_read_ahead_bytes",
            "Bytes fetched ahead of readers: used, or wasted (evicted before a read).",
            labels=["outcome"],
        )
        ahead.add_metric(["used"], counts.ahead_used_bytes)
        ahead.add_metric(["wasted"], counts.ahead_wasted_bytes)
        yield ahead
