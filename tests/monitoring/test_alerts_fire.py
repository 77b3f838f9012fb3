"""Each alert rule fires when its cause is there, and not before: the cause is real for the code
under test, and the samples are what the node's own /metrics says.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.metrics.metrics import NodeMetrics
from kafka_formats.errors import RetryLater
from kafka_formats.log_names import segment_file_name
from rlm.control.node_problem import ProblemLog
from rlm.control.surroundings import CopyLimits
from rlm.control.task_watch import Loop
from rlm.copy.hold import HoldLimits
from rlm.format.object_keys import segment_keys
from rlm.leadership.leadership import Leads, NoAnswer
from rlm.node_files.kill_switches import Switch
from rlm.repair.repair_run import RepairRequest
from rlm.stores.store_watch import StoreWatch
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.raft.timers import RaftSettings
from rsm_backends.measured_store import MeasuredStore
from strandline.node.readiness import NodeFacts, missing_until_ready
from strandline.settings.settings import QuorumSettings
from tests.api.fakes import FakeNode, make_node
from tests.monitoring.scraper import RULES, Scraper, WatchedNode
from tests.real.ports import free_ports
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import retention
from tests.rlm.hooked_store import Hook, HookedStore, no_hook
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Node, World, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.test_service_retention import EVERYTHING_IS_OLD, decide
from tests.rlm.virtual_time import START_MS, run_virtually
from tests.rlmm.quorum.local_network import Network
from tests.rlmm.quorum.lost_leader import lose_the_leader
from tests.rlmm.quorum.three_managers import leading, three_nodes

MINUTE_S, HOUR_S = 60.0, 3_600.0
GIB = 1 << 30
ORDERS = ("orders", 0)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


class Store:
    """A hook: whether the store answers."""

    def __init__(self) -> None:
        self.down = False

    async def __call__(self, step: str) -> None:
        if self.down and step.startswith(("before get", "before head", "before put", "before del")):
            raise RetryLater("connection refused")


@asynccontextmanager
async def watched(
    world: World,
    *,
    hook: Hook = no_hook,
    broker: FakeBroker | None = None,
    hold: HoldLimits | None = None,
    limits: CopyLimits = LIMITS,
) -> AsyncIterator[tuple[Node, WatchedNode]]:
    """A node that runs, scraped for a while without any rule firing."""
    async with world.boot(
        hook=hook, broker=broker, hold=hold, limits=limits, data_plane=True
    ) as node:
        seen = WatchedNode(node)
        watch = _store_watch(node, hook, seen.metrics)
        node.remote_log.loops = (*node.remote_log.loops, Loop("watch the stores", watch.run))
        await node.remote_log.start()
        await seen.run(11 * MINUTE_S, every_s=60)
        assert seen.scraper.firing() == set()
        yield node, seen
        await node.remote_log.close()


def _store_watch(node: Node, hook: Hook, metrics: NodeMetrics) -> StoreWatch:
    ambient = node.parts.around.ambient
    measured = MeasuredStore(
        HookedStore(node.store, hook), metrics.store.observer("main"), monotonic=ambient.monotonic
    )
    stores = TierStores({"main": TierStore("main", measured, PREFIX)}, "main")
    return StoreWatch(stores, ambient, ProblemLog(logging.getLogger(__name__)))


def grow(log: KafkaLog, base: int, size_bytes: int) -> None:
    """The segment at `base` has this size (a hole in the file), and another one follows it."""
    log.write(base, base + 10, end=base + 15)
    now_s = START_MS / 1_000 + asyncio.get_running_loop().time()
    for each in (base, base + 10):
        path = log.directory / segment_file_name(each, ".log")
        os.utime(path, (now_s, now_s))
    os.truncate(log.directory / segment_file_name(base, ".log"), size_bytes)
    os.utime(log.directory / segment_file_name(base, ".log"), (now_s, now_s))


def test_a_store_that_is_down_for_hours(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        store = Store()
        async with watched(new_world(tmp_path, (orders.log_dir,)), hook=store) as (_, seen):
            store.down = True
            grow(orders, 20, 11 * GIB)
            await seen.run(20 * MINUTE_S, every_s=60)
            early = {"StrandlineStoreFails", "StrandlineCopyFails", "StrandlineNodeProblem"}
            assert seen.scraper.firing() == early
            for base in (30, 40, 50, 60):
                grow(orders, base, GIB)
                await seen.run(30 * MINUTE_S, every_s=240)
            late = {"StrandlineCopyLagOld", "StrandlineCopyLagGrows"}
            assert seen.scraper.firing() >= early | late
            store.down = False
            await seen.run(30 * MINUTE_S, every_s=240)
            assert not seen.fires("StrandlineStoreFails")

    run_virtually(main)


def test_a_broker_that_is_silent(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with watched(world, broker=broker) as (_, seen):
            broker.words[ORDERS] = NoAnswer("no answer")
            await seen.run(9 * MINUTE_S)
            assert seen.scraper.firing() == set()
            await seen.run(3 * MINUTE_S)
            assert seen.scraper.firing() == {"StrandlineBrokerSilent", "StrandlineNodeProblem"}

    run_virtually(main)


def test_local_retention_that_was_faster_than_the_store(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        store = Store()
        async with watched(new_world(tmp_path, (orders.log_dir,)), hook=store) as (_, seen):
            store.down = True
            orders.write(20, 30, 40, end=45)
            await seen.run(MINUTE_S)
            orders.delete_segment(0)
            orders.delete_segment(10)
            orders.delete_segment(20)
            orders.set_epochs((0, 30))
            store.down = False
            await seen.run(6 * MINUTE_S)
            assert seen.fires("StrandlineOffsetsLost")

    run_virtually(main)


def test_a_node_formatted_anew_with_another_id(tmp_path: Path, orders: KafkaLog) -> None:
    """Its broker leads on at the epoch that the node before it claimed."""

    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with watched(world, broker=broker):
            pass
        async with world.boot(broker=broker, node_id=4, directory_id=uuid(44)) as node:
            seen = WatchedNode(node)
            await node.remote_log.start()
            await seen.run(MINUTE_S / 2)
            problems = (await seen.client.get("/v1/cluster")).json()["problems"]
            # Its log goes on as node 1's, so that nobody fetches as node 4.
            (problem,) = [each for each in problems if each["about"] != "nodes"]
            assert (problem["about"], problem["name"]) == ("partitions", "claimed_elsewhere")
            assert "node 1" in problem["text"]
            await seen.run(4 * MINUTE_S, every_s=60)
            assert seen.scraper.firing() == set()
            await seen.run(9 * MINUTE_S, every_s=60)
            alike = {"StrandlineClaimedElsewhere", "StrandlineNodeProblem"}
            assert seen.scraper.firing() == alike
            orders.write(20, 30, 40, end=45)
            retention(orders, 0, 10, 20, start=30)
            await seen.run(4 * MINUTE_S, every_s=60)
            assert seen.scraper.firing() == alike | {"StrandlineOffsetsGone"}
            await node.remote_log.close()

    run_virtually(main)


def test_a_hold_without_room(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        store = Store()
        world = new_world(tmp_path, (orders.log_dir,))
        narrow = HoldLimits(bytes_max=1, free_bytes_min=0)
        async with watched(world, hook=store, hold=narrow) as (_, seen):
            store.down = True
            orders.write(20, 30, 40, end=45)
            await seen.run(2 * MINUTE_S)
            retention(orders, 0, 10, 20, start=30)
            await seen.run(2 * MINUTE_S)
            assert seen.fires("StrandlineHoldMissed")

    run_virtually(main)


def test_a_corrupt_segment(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with watched(new_world(tmp_path, (orders.log_dir,))) as (_, seen):
            orders.write(20, 30, end=35)
            orders.damage(20)
            await seen.run(7 * MINUTE_S)
            assert seen.fires("StrandlinePartitionBlocked")

    run_virtually(main)


def test_an_object_that_is_damaged(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with watched(new_world(tmp_path, (orders.log_dir,))) as (node, seen):
            row = next(node.metadata.list_remote_log_segments(orders.partition))
            await node.store.damage(segment_keys(PREFIX, row.segment_id, row.start_offset).log)
            answer = await seen.client.get(
                "/v1/topics/orders/partitions/0/records", params={"offset": row.start_offset}
            )
            assert answer.json()["kind"] == "corrupt_data"
            await seen.run(MINUTE_S)
            assert seen.fires("StrandlineCorruptReads")

    run_virtually(main)


def test_a_damaged_segment_that_nothing_has_whole(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with watched(new_world(tmp_path, (orders.log_dir,))) as (node, seen):
            row = next(node.metadata.list_remote_log_segments(orders.partition))
            await node.store.damage(segment_keys(PREFIX, row.segment_id, row.start_offset).log)
            retention(orders, 0, 10, start=20)
            node.repairs.start(RepairRequest("orders", apply=True), "alice")
            await seen.run(2 * MINUTE_S)
            assert seen.fires("StrandlineUnrepairableSegments")

    run_virtually(main)


def test_a_clock_that_is_an_hour_off(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        async with watched(new_world(tmp_path, (orders.log_dir,))) as (node, seen):
            node.store.clock_offset_ms = 3_600_000
            await seen.run(25 * MINUTE_S, every_s=60)
            assert seen.scraper.firing() == {"StrandlineNodeProblem"}

    run_virtually(main)


def test_a_pause_that_was_forgotten(tmp_path: Path, orders: KafkaLog) -> None:
    limits = replace(LIMITS, scan_interval_s=30.0)  # a look takes a millisecond, in hours as well

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with watched(world, limits=limits) as (node, seen):
            await decide(node, EVERYTHING_IS_OLD)
            await node.parts.expirer.run_pass()
            await node.parts.given.switches.pause(Switch.DELETING, by="alice")
            await seen.run(5 * HOUR_S, every_s=240)
            assert seen.scraper.firing() == set()
            await seen.run(1.2 * HOUR_S, every_s=240)
            assert seen.fires("StrandlinePausedForLong")
            await seen.run(0.6 * HOUR_S, every_s=240)
            firing = seen.scraper.firing()
            assert firing >= {"StrandlinePausedForLong", "StrandlineDeletesStuck"}

    run_virtually(main)


def test_a_quorum_without_a_majority(tmp_path: Path) -> None:
    async def main() -> None:
        # Who asks for votes ten times a second gets no more of them while all are cut off.
        settings = RaftSettings(pre_vote_retry_ms=1_000, retry_backoff_ms=1_000)
        network = Network(settings=settings)
        async with three_nodes(tmp_path, network) as nodes:
            await leading(nodes)
            node, loop = nodes[0], asyncio.get_running_loop()

            def not_ready() -> list[str]:
                core_ms = node.replica.log.driver.core.replica.now
                log = node.manager.describe()
                ahead_ms = log.leader_heard_ms - node.replica.log.driver.core.leader_heard_ms
                facts = NodeFacts(None, True, log, node.manager.applied_offset, core_ms + ahead_ms)
                return missing_until_ready(facts, QuorumSettings())

            fake = make_node()
            context = replace(fake.context, manager=node.manager, not_ready=not_ready)
            client = FakeNode(context, fake.manager, fake.rlm, fake.quorum).client()
            scraper = Scraper(client)

            async def run(seconds: float) -> None:
                end_s = loop.time() + seconds
                while loop.time() < end_s:
                    await scraper.scrape(loop.time())
                    await asyncio.sleep(15)

            await run(90)
            assert scraper.firing() == set()
            await lose_the_leader(network, nodes)
            await run(90)
            assert scraper.firing() == {"StrandlineNoMetadataLeader"}
            await run(5 * MINUTE_S)
            expected = {"StrandlineNoMetadataLeader", "StrandlineNotReady"}
            assert scraper.firing() == expected

    run_virtually(main)


async def test_a_node_that_does_not_answer() -> None:
    (port,) = free_ports(1)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        scraper = Scraper(client)
        for at_s in range(0, 150, 30):
            await scraper.scrape(at_s)
    assert scraper.firing() == {"StrandlineNodeDown"}


def test_every_rule_is_fired_by_its_cause() -> None:
    asserted = set()
    for module in Path(__file__).parent.glob("test_*alerts_fire.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                asserted.add(node.value)
    assert {rule for rule in RULES if rule not in asserted} == set()
