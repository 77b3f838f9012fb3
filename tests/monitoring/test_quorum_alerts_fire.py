"""Alert rules about the metadata log of one node: a slow disk, a view that lags, a cut end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from api.metrics.metrics import NodeMetrics
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.timers import RaftSettings
from rlmm.records.control_records import TopicPolicyChange
from rlmm.records.records import encode
from rlmm.view.view import View
from tests.api.fakes import FakeNode, make_node
from tests.monitoring.scraper import Scraper
from tests.rlm.virtual_time import VirtualTimeLoop, run_virtually
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.metadata_node import open_node
from tests.rlmm.quorum.local_network import METADATA, NODES, Network
from tests.rlmm.quorum.three_managers import leading, three_nodes

MINUTE_S = 60.0
SLOW = RaftSettings(
    election_timeout_ms=30_000,
    fetch_timeout_ms=80_000,
    election_backoff_max_ms=30_000,
    request_timeout_ms=20_000,
    retry_backoff_ms=2_000,
    pre_vote_retry_ms=30_000,
    fetch_wait_max_ms=20_000,
)
"""A quarter of an hour has not many turns then."""


class Watched:
    """A node of which only the metadata log is real; its /metrics is scraped."""

    def __init__(self, manager: RemoteLogMetadataManager, log: QuorumLog) -> None:
        fake, metrics = make_node(), NodeMetrics()
        metrics.quorum.watch(log.stats, manager.stats)
        context = replace(fake.context, manager=manager, metrics=metrics)
        self._scraper = Scraper(FakeNode(context, fake.manager, fake.rlm, fake.quorum).client())

    async def run(self, seconds: float) -> None:
        """Scrape every 30 s."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await self._scraper.scrape(loop.time())
            await asyncio.sleep(30)

    def firing(self) -> set[str]:
        return self._scraper.firing()


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def test_a_disk_that_takes_most_of_a_second_for_each_sync(tmp_path: Path) -> None:
    async def main() -> None:
        loop, disk = virtual_loop(), CrashDisk()
        node = await open_node(tmp_path, disk=disk)
        seen = Watched(node.manager, node.log)

        async def write_for(seconds: float) -> None:
            for _ in range(int(seconds / 60)):
                topic = f"topic-{loop.time():.0f}"
                await node.manager.set_topic_policy(TopicPolicyChange(topic, TopicPolicy(), -1))
                await seen.run(60)

        def sync_slowly() -> None:
            loop.now_s += 0.8

        await write_for(10 * MINUTE_S)
        assert seen.firing() == set()
        disk.before_sync = sync_slowly
        await write_for(25 * MINUTE_S)
        assert seen.firing() == {"StrandlineMetadataDiskSlow"}
        await node.close()

    run_virtually(main)


def test_a_view_that_does_not_keep_up(tmp_path: Path) -> None:
    async def main() -> None:
        loop = virtual_loop()
        node = await open_node(tmp_path)
        seen = Watched(node.manager, node.log)
        await seen.run(6 * MINUTE_S)
        assert seen.firing() == set()
        _slow_down(node.view, loop)
        change = encode(TopicPolicyChange("orders", TopicPolicy(), -1))
        written = (node.log.propose((change,) * 1_000, deadline_s=86_400) for _ in range(16))
        await asyncio.gather(*written)
        await seen.run(6 * MINUTE_S)
        assert seen.firing() == {"StrandlineMetadataLags"}
        await node.close()

    run_virtually(main)


def _slow_down(view: View, loop: VirtualTimeLoop) -> None:
    """Each step of applying takes half a minute, as on a disk that is lost in work."""
    commit = view.commit_changes

    def slowly(*arguments: object, **named: object) -> None:
        loop.now_s += 30
        commit(*arguments, **named)  # type: ignore[arg-type]  # handed on as they are

    view.commit_changes = slowly  # type: ignore[method-assign]  # the disk is slow, not the view


def test_a_cut_end_that_is_not_fetched_again(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network(settings=SLOW)
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes, deadline_s=600)
            await leader.manager.set_topic_policy(TopicPolicyChange("orders", TopicPolicy(), -1))
            node = next(each for each in nodes if each is not leader)
            await node.manager.wait_for_offset(leader.manager.applied_offset, deadline_s=30)
            crashed = node.replica.disk.copy()
            await node.stop()
            node.replica.disk = crashed
            directory = METADATA / PARTITION_DIRECTORY
            (log,) = (name for name in crashed.list_names(directory) if name.endswith(".log"))
            crashed.damage(directory / log, crashed.size(directory / log) - 1)
            network.isolate(node.replica.node_id, NODES)
            await node.start()
            seen = Watched(node.manager, node.replica.log)
            await seen.run(14 * MINUTE_S)
            assert "StrandlineMetadataTailCut" not in seen.firing()
            await seen.run(2 * MINUTE_S)
            assert "StrandlineMetadataTailCut" in seen.firing()
            network.cut.clear()
            await seen.run(5 * MINUTE_S)
            assert seen.firing() == set()

    run_virtually(main)
