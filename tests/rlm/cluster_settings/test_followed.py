"""Settings of the cluster at work in a node: at once, and after a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.cluster_settings.follower import SettingsFollower
from rlm.cluster_settings.in_force import SettingsInForce
from rlm.cluster_settings.known_settings import Setting
from rlm.control.why_not import WhyNot
from rlm.copy.work_table import WorkTable
from rlm.leadership.topic_filter import TopicFilter
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import FlowLimits, Rates
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.records.control_records import ClusterSetting
from rlmm.records.setting_scope import CLUSTER, SettingScope, of_node, of_topic
from rlmm.rows.cluster_settings import find_setting
from strandline.node.remote_log import build
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.virtual_time import run_virtually

NONE = TopicFilter()
SELDOM = replace(LIMITS, scan_interval_s=100_000.0)
"""No regular look follows the first one."""


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Two sealed segments, offsets 0 to 19, and the active one."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=21)
    return log


async def put(node: Node, setting: str, scope: SettingScope, value: str | None) -> int:
    """Set it, whichever stands."""
    before = find_setting(node.metadata._view, setting, scope)
    replaces = -1 if before is None else before.offset
    change = ClusterSetting(scope, setting, value, "ann", "a reason", replaces)
    return await node.metadata.set_cluster_setting(change)


def test_an_enabled_topic_is_copied_without_waiting_for_the_next_look(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(topics=NONE, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.remote_log.status(orders.partition).why_not_copying is WhyNot.NOT_INCLUDED
            await put(node, Setting.TIERED, of_topic("ord*"), "true")
            await asyncio.sleep(5)
            assert len(node.finished(orders.partition)) == 2
            await put(node, Setting.TIERED, of_topic("orders"), "false")
            orders.write(20, 30, end=31)
            await asyncio.sleep(5)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.NOT_INCLUDED
            assert "disabled for topic orders by ann" in page.why_not_text
            await put(node, Setting.TIERED, of_topic("orders"), None)
            await asyncio.sleep(5)
            assert len(node.finished(orders.partition)) == 3
        orders.write(30, 40, end=41)
        async with world.boot(topics=NONE, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(5)
            assert node.finished(orders.partition)[-1] == (30, 39)

    run_virtually(main)


def test_a_pause_of_the_cluster_holds_until_it_is_taken_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(limits=SELDOM) as node:
            await put(node, Setting.COPYING_PAUSED, CLUSTER, "true")
            await node.remote_log.start()
            await asyncio.sleep(5)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.PAUSED
            assert "paused for the cluster by ann (a reason)" in page.why_not_text
            told = [each.name for each in node.remote_log.node_problems()]
            assert "copying (cluster settings)" in told
            await put(node, Setting.COPYING_PAUSED, of_node(1), "false")
            await asyncio.sleep(5)
            assert len(node.finished(orders.partition)) == 2, "its own setting wins"
            await put(node, Setting.DELETING_PAUSED, of_node(1), "true")
            assert "node 1" in str(node.parts.held_back.deleting("orders"))

    run_virtually(main)


def test_limits_over_the_nodes_own_are_raised_to_what_can_be_kept() -> None:
    flow = FlowControl(
        FlowLimits(Rates(50 * 2**20)), part_bytes=12 * 2**20, workers=10, monotonic=lambda: 0.0
    )
    over = FlowLimits(Rates(5))
    flow.hold_over(lambda own: over)
    assert flow.limits == FlowLimits(Rates(4 * 2**20))
    revision, over = flow.revision, FlowLimits(Rates(None, 2**21))
    flow.refresh()
    assert (flow.limits, flow.revision) == (over, revision + 1)
    flow.refresh()
    assert flow.revision == revision + 1, "nothing changed"
    assert flow.own == FlowLimits(Rates(50 * 2**20))


def test_a_limit_that_is_set_before_the_loops_run_holds(tmp_path: Path) -> None:
    async def main() -> None:
        async with new_world(tmp_path, ()).boot() as node:
            flow = FlowControl(FlowLimits(), part_bytes=2**20, workers=1, monotonic=lambda: 0.0)
            settings = SettingsInForce(node.metadata.cluster_settings, 1, NONE)
            flow.hold_over(settings.limits)

            async def act() -> None:
                flow.refresh()

            follower = SettingsFollower(node.metadata, node.parts.around.ambient, act)
            await put(node, Setting.COPY_RATE, CLUSTER, str(50 * 2**20))
            task = asyncio.create_task(follower.run())
            await asyncio.sleep(1)
            task.cancel()
            assert flow.limits.node.copy_bytes_per_s == 50 * 2**20

    run_virtually(main)


def test_a_limit_holds_at_once_while_a_look_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change begins a look, and a disk may hang for as long as a look may take."""

    async def hangs(_table: WorkTable, *, cancel_lost: bool) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        flow = FlowControl(
            FlowLimits(), part_bytes=2**20, workers=1, monotonic=asyncio.get_running_loop().time
        )
        monkeypatch.setattr(WorkTable, "scan", hangs)
        async with new_world(tmp_path, ()).boot(limits=SELDOM) as node:
            await build(replace(node.parts.given, flow=flow)).remote_log().start()
            for rate in (50 * 2**20, 5 * 2**20):
                await put(node, Setting.COPY_RATE, CLUSTER, str(rate))
                await asyncio.sleep(1)
                assert flow.limits.node.copy_bytes_per_s == rate

    run_virtually(main)


def test_a_topic_that_is_disabled_is_copied_no_further_while_a_look_hangs(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look takes its claim away, and would end the copy under way."""

    async def hangs(_table: WorkTable, *, cancel_lost: bool) -> None:
        await asyncio.sleep(60)

    async def slow(step: str) -> None:
        await asyncio.sleep(10 if step == "before upload" else 0)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=slow, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(5)
            monkeypatch.setattr(WorkTable, "scan", hangs)
            await put(node, Setting.TIERED, of_topic("orders"), "false")
            await asyncio.sleep(50)
            assert node.finished(orders.partition) == [(0, 9)], "its copy was under way"
            page = node.remote_log.status(orders.partition)
            assert "disabled for topic orders by ann" in page.why_not_text

    run_virtually(main)


def test_a_view_that_a_snapshot_replaces_stops_no_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that ends is told, and stays ended until the node is started again."""

    async def main() -> None:
        async with new_world(tmp_path, ()).boot() as node:
            acted = 0

            async def act() -> None:
                nonlocal acted
                acted += 1

            def replaced(_self: object) -> None:
                raise RetryLater("the view is being replaced by a snapshot")

            follower = SettingsFollower(node.metadata, node.parts.around.ambient, act)
            with monkeypatch.context() as patch:
                patch.setattr(RemoteLogMetadataManager, "cluster_settings", replaced)
                task = asyncio.create_task(follower.run())
                await asyncio.sleep(3)
                assert not task.done()
            await put(node, Setting.COPY_RATE, CLUSTER, str(50 * 2**20))
            await asyncio.sleep(2)
            task.cancel()
            assert acted == 1

    run_virtually(main)
