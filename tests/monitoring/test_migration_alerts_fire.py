"""Alert rules about Kafka's own metadata topic after a move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from api.metrics.metrics import NodeMetrics
from rlm.migration.no_broker import SHADOW_LIMITS, NoTopic
from rlm.migration.shadow import ShadowTask
from tests.api.fakes import FakeNode, make_node
from tests.monitoring.scraper import Scraper
from tests.rlm.migration.shadow_node import Moved, moved
from tests.rlm.migration.shadow_world import Entry
from tests.rlm.migration.test_shadow import Scene
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import NOW_MS

MINUTE_S = 60.0
SCRAPED_EVERY_S = 30


class Watched:
    """The node of a moved cluster, and the task that keeps the topic up."""

    def __init__(self, node: Moved) -> None:
        self.node = node
        self.topic = Scene(node)
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
        """Let the task do its work, and scrape; the rules that fire in the end."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + minutes * MINUTE_S
        while loop.time() < end_s:
            await self.topic.task.round()
            await self._scraper.scrape(loop.time())
            await asyncio.sleep(SCRAPED_EVERY_S)
            self.node.now += SCRAPED_EVERY_S
        return self._scraper.firing()


@asynccontextmanager
async def watched(home: Path) -> AsyncIterator[Watched]:
    async with moved(home) as node:
        seen = Watched(node)
        assert await seen.run(12) == set()
        yield seen


def test_a_topic_that_lags(tmp_path: Path) -> None:
    async def main() -> None:
        async with watched(tmp_path) as seen:
            partitions = seen.topic.world.partitions
            seen.topic.world.fence()  # the session begins anew
            for each in partitions:
                each.has_leader = False
            await seen.node.copy(1)
            assert await seen.run(8) == {"StrandlineShadowLags"}
            for each in partitions:
                each.has_leader = True
            assert await seen.run(2) == set()

    run_virtually(main)


def test_a_topic_that_a_leader_without_a_broker_does_not_keep_up(tmp_path: Path) -> None:
    """And no other voter has one that takes over."""

    async def main() -> None:
        async with watched(tmp_path) as seen:
            moved, scene = seen.node, seen.topic
            scene.task = ShadowTask(
                moved.manager, NoTopic, moved.around(), scene.hand_over, limits=SHADOW_LIMITS
            )
            await moved.copy(1)
            assert await seen.run(8) == {"StrandlineShadowLags"}
            assert scene.handed_over, "it was tried"

    run_virtually(main)


def test_a_foreign_writer(tmp_path: Path) -> None:
    async def main() -> None:
        async with watched(tmp_path) as seen:
            by_a_broker = Entry(None, b"by a broker", 0, committed=True)
            seen.topic.world.partitions[2].append(by_a_broker)
            assert await seen.run(3) == {"StrandlineForeignMetadata"}

    run_virtually(main)


def test_a_way_back_that_is_closed(tmp_path: Path) -> None:
    """Records that were acknowledged are gone from the topic, as unclean elections lose them."""

    async def main() -> None:
        async with watched(tmp_path) as seen:
            await seen.node.copy(3)
            assert await seen.run(2) == set()
            for each in seen.topic.world.partitions:
                each.entries.clear()
            assert await seen.run(5) == {"StrandlineNoWayBack"}

    run_virtually(main)
