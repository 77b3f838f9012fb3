"""Metrics of the workers' caches in memory."""

from __future__ import annotations

from api.metrics.metrics import NodeMetrics
from rlm.data_plane.chunk_cache import ChunkCounts
from rlm.worker.pool import WorkerPool


class Workers(WorkerPool):
    def __init__(self) -> None:
        """Starts none."""

    def chunk_counts(self) -> ChunkCounts:
        return ChunkCounts(hits=5, misses=4, shared=3, ahead_used_bytes=2, ahead_wasted_bytes=1)

    def chunk_bytes_held(self) -> int:
        return 99


def samples(metrics: NodeMetrics) -> dict[str, float]:
    return {
        f"{sample.name} {sample.labels.get('outcome', '')}".strip(): sample.value
        for family in metrics.cache.collect()
        for sample in family.samples
    }


def test_each_figure_is_told_under_its_own_name() -> None:
    metrics = NodeMetrics()
    assert set(samples(metrics).values()) == {0.0}
    metrics.cache.watch(Workers())
    assert samples(metrics) == {
        "strandline_chunk_cache_lookups_total hit": 5,
        "strandline_chunk_cache_lookups_total miss": 4,
        "strandline_chunk_cache_lookups_total shared": 3,
        "strandline_chunk_cache_bytes": 99,
        "strandline_read_ahead_bytes_total used": 2,
        "strandline_read_ahead_bytes_total wasted": 1,
    }
