"""Alert rules about Kafka's own metadata topic after a move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from api.metrics.metrics import NodeMetrics
from rlmm.records.control_records import ShadowWritten
from tests.api.fakes import FakeNode, make_node
from tests.monitoring.scraper import Scraper
from tests.rlm.migration.shadow_node import Moved, moved
from tests.rlm.migration.shadow_world import PARTITIONS, TOPIC_ID
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import NOW_MS

MINUTE_S = 60.0


class Watched:
    """The node of a moved cluster, whose topic nobody writes."""

    def __init__(self, node: Moved) -> None:
        self.node = node
        loop = asyncio.get_running_loop()
        begun = loop.time()
        fake = make_node()
        context = replace(
            fake.context,
            manager=node.manager,
            metrics=NodeMetrics(),
            now_ms=lambda: NOW_MS + round(1_000 * (loop.time() - begun)),
        )
        self._scraper = Scraper(FakeNode(context, fake.manager, fake.rlm, fake.quorum).client())

    async def run(self, minutes: float) -> set[str]:
        """Scrape every 30 s; the rules that fire in the end."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + minutes * MINUTE_S
        while loop.time() < end_s:
            await self._scraper.scrape(loop.time())
            await asyncio.sleep(30)
        return self._scraper.firing()

    async def report(self, **told: str) -> None:
        shadow = self.node.manager.shadow()
        assert shadow is not None
        up_to = self.node.manager.applied_offset
        report = ShadowWritten(shadow.begun, TOPIC_ID, PARTITIONS, up_to)
        await self.node.manager.report_shadow(replace(report, **told))  # type: ignore[arg-type]


@asynccontextmanager
async def watched(home: Path) -> AsyncIterator[Watched]:
    async with moved(home) as node:
        seen = Watched(node)
        assert await seen.run(12) == set()
        yield seen


def test_a_topic_that_lags(tmp_path: Path) -> None:
    async def main() -> None:
        async with watched(tmp_path) as seen:
            await seen.node.copy(1)
            assert await seen.run(8) == {"StrandlineShadowLags"}
            await seen.report()
            assert await seen.run(2) == set()

    run_virtually(main)


def test_a_foreign_writer(tmp_path: Path) -> None:
    async def main() -> None:
        async with watched(tmp_path) as seen:
            await seen.report(foreign="a broker")
            assert await seen.run(1) == {"StrandlineForeignMetadata"}

    run_virtually(main)


def test_a_way_back_that_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with watched(tmp_path) as seen:
            await seen.report(incomplete="it lost records")
            assert await seen.run(1) == {"StrandlineNoWayBack"}

    run_virtually(main)
