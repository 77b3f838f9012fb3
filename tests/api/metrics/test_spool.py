"""Segments that a broker sends, as a scrape shows them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from api.metrics.spool import SpoolMetrics
from kafka_formats.kafka_uuid import Uuid
from rlm.delegated.spool import NoRoom, Spool, SpoolLimits


def test_a_scrape_shows_the_bytes_of_the_spool_and_the_segments_it_refused(tmp_path: Path) -> None:
    registry = CollectorRegistry()

    def shown() -> tuple[float | None, float | None]:
        return (
            registry.get_sample_value("strandline_spool_bytes"),
            registry.get_sample_value("strandline_spool_refused_segments_total"),
        )

    metrics = SpoolMetrics(registry)
    assert shown() == (0, 0)
    spool = Spool(SpoolLimits(tmp_path / "spool", bytes_max=100, free_bytes_min=0), lambda: 0.0)
    metrics.watch(spool)

    async def main() -> None:
        async with spool.place(Uuid(bytes(15) + b"\x01"), 60, "orders-0"):
            assert shown() == (60, 0)
        with pytest.raises(NoRoom):
            await spool.place(Uuid(bytes(15) + b"\x02"), 101, "orders-0").__aenter__()
        assert shown() == (0, 1)

    asyncio.run(main())
