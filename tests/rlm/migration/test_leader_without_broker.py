"""A voter of the quorum that serves no broker leads while a move stands: it lets another one lead
that can carry it out. Whole metadata nodes in one process; the Kafka cluster is made up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kafka_formats.kafka_uuid import Uuid
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import Ambient, CopyLimits, Identity, Surroundings
from rlm.control.trouble_report import TroubleReport
from rlm.migration.acknowledgements import Acknowledgement
from rlm.migration.handing_over import HAND_OVER_DEADLINE_S, HandingOver
from rlm.migration.log_side import LogSide
from rlm.migration.moving import Moving
from rlm.migration.no_broker import NO_BROKER, SHADOW_LIMITS, NoBrokers, NoTopic
from rlm.migration.shadow import ShadowTask
from rlm.migration.switching import BrokersPort, TopicSource
from rlm.migration.topic_checks import PartitionRead
from rlm.migration.topic_replay import TopicReplay
from rlmm.metadata_shadow import ShadowLag
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode
from rlmm.quorum.admin import QuorumAdmin
from rlmm.records.control_records import MigrationPhaseChange
from tests.rlm.migration.shadow_world import PARTITIONS, TOPIC_ID, SimTopic, World
from tests.rlm.migration.test_shadow import Partition
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import claim, finished, incarnation, started
from tests.rlmm.quorum.local_network import NODES, Network
from tests.rlmm.quorum.three_managers import Node, leading, three_nodes

KAFKA, SWITCHING, QUORUM, BACK = (
    MigrationPhase.KAFKA,
    MigrationPhase.SWITCHING,
    MigrationPhase.QUORUM,
    MigrationPhase.BACK,
)
DEADLINE_S = 120.0
MOVED_WITHIN_S = 30.0
TOLD_WITHIN_S = 45.0
NO_LAG = ShadowLag(0, None)


@dataclass(frozen=True)
class EmptyTopic:
    """Kafka's metadata topic, of which nothing was written."""

    topic_id: Uuid = TOPIC_ID
    partitions: Sequence[int] = tuple(range(PARTITIONS))

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        progress(0, 0)
        return TopicReplay("topic"), PartitionRead(partition, 0, 0, 0)

    async def close(self) -> None:
        pass


@dataclass
class Kafka:
    """Brokers, each beside the node with its id, and their topic."""

    broker_ids: set[int]
    topic: World = field(
        default_factory=lambda: World(
            Random(1), calm=True, partitions=[Partition() for _ in range(PARTITIONS)]
        )
    )

    async def live(self) -> Collection[int]:
        return self.broker_ids

    async def open_topic(self) -> TopicSource:
        return EmptyTopic()

    def in_topic(self) -> int:
        return sum(
            each.value is not None for some in self.topic.partitions for each in some.entries
        )


class Site:
    """All nodes, as the composition root builds their parts of a move."""

    def __init__(self, nodes: list[Node], network: Network, kafka: Kafka) -> None:
        self.nodes = nodes
        self.network = network
        self.kafka = kafka
        self.reports: dict[int, TroubleReport] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        for node in self.nodes:
            self._begin(node)

    def _begin(self, node: Node) -> None:
        node_id, loop = node.replica.node_id, asyncio.get_running_loop()
        ambient = Ambient(lambda: 0, loop.time, asyncio.sleep, lambda: 0.5, lambda: uuid(1))
        identity = Identity("cluster", None, replace(incarnation(), node_id=node_id))
        around = Surroundings(identity, CopyLimits(), ambient)
        serves = node_id in self.kafka.broker_ids
        transfer = partial(
            QuorumAdmin(node.replica.log.driver).transfer, deadline_s=HAND_OVER_DEADLINE_S
        )
        log = LogSide(node.manager, "node", HandingOver(node.manager, node_id, transfer))
        brokers: BrokersPort = self.kafka if serves else NoBrokers()

        def last() -> Acknowledgement:
            stands = node.manager.migration()
            return Acknowledgement(node_id, "0.1.0", stands.phase, 0, stands.since, loop.time())

        moving = Moving(node.manager, around, last, log, brokers, DEADLINE_S, has_broker=serves)
        if serves:
            new_topic = partial(SimTopic, self.kafka.topic)
            shadow = ShadowTask(node.manager, new_topic, around, log.hand_over)
        else:
            shadow = ShadowTask(node.manager, NoTopic, around, log.hand_over, limits=SHADOW_LIMITS)
        self.reports[node_id] = TroubleReport(
            around, (moving.problems, shadow.problems), lambda: ()
        )
        runs = [each.run for each in moving.loops] + [shadow.run, self.reports[node_id].run]
        self._tasks += [asyncio.ensure_future(run()) for run in runs]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert {type(each) for each in ends} <= {asyncio.CancelledError}, ends

    async def phase(self, *phases: MigrationPhase) -> None:
        """Recorded by the leader, and applied by all."""
        leader = await leading(self.nodes)
        for each in phases:
            since = leader.manager.migration().since
            change = MigrationPhaseChange(each, since, "kafka", "ann", "the move")
            offset = await leader.manager.record_move(change)
            for node in self.nodes:
                await node.manager.wait_for_offset(offset, deadline_s=10)

    async def until_phase(self, wanted: MigrationPhase, within_s: float) -> float:
        """Seconds until every node has it."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(within_s):
            while {each.manager.migration().phase for each in self.nodes} != {wanted}:
                await asyncio.sleep(0.1)
        return loop.time() - begun

    def problems(self) -> dict[int, tuple[NodeProblem, ...]]:
        return {number: report.problems() for number, report in self.reports.items()}


@asynccontextmanager
async def site_of(home: Path, *, brokers: int = 2) -> AsyncIterator[tuple[Site, int]]:
    """In phase KAFKA, led by a node without a broker: the id of that one. So many others have
    one.
    """
    network = Network()
    async with three_nodes(home, network) as nodes:
        leader = await leading(nodes)
        await leader.manager.finalise_feature_level(2)
        without = leader.replica.node_id
        beside = sorted(set(NODES) - {without})[:brokers]
        site = Site(nodes, network, Kafka(set(beside)))
        await site.phase(KAFKA)
        try:
            yield site, without
        finally:
            await site.end()


async def copied_by(node: Node, count: int, first: int = 0) -> None:
    """Two changes each, of a delegated partition."""
    manager = node.manager
    token = (await manager.claim_partition(replace(claim(), mode=Mode.DELEGATED))).token
    for number in range(first, first + count):
        segment = started(number, token)
        await manager.add_remote_log_segment_metadata(segment)
        await manager.update_remote_log_segment_metadata(finished(segment))


async def leader_id(site: Site) -> int:
    return (await leading(site.nodes)).replica.node_id


def test_a_switch_is_carried_out_beside_a_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with site_of(tmp_path) as (site, without):
            site.begin()
            await site.phase(SWITCHING)
            await site.until_phase(QUORUM, MOVED_WITHIN_S)
            assert await leader_id(site) != without
            assert {each for some in site.problems().values() for each in some} == set()

    run_virtually(main)


def test_a_way_back_is_carried_out_beside_a_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with site_of(tmp_path) as (site, without):
            await site.phase(SWITCHING, QUORUM, BACK)
            site.begin()
            await site.until_phase(KAFKA, MOVED_WITHIN_S)
            assert await leader_id(site) != without

    run_virtually(main)


def test_the_topic_is_kept_up_whoever_came_to_lead(tmp_path: Path) -> None:
    """An admin, or an election, lets the node without a broker lead, again and again."""

    async def main() -> None:
        async with site_of(tmp_path) as (site, without):
            site.begin()
            await site.phase(SWITCHING)
            await site.until_phase(QUORUM, MOVED_WITHIN_S)
            for first in (0, 2):
                leader = await leading(site.nodes)
                admin = QuorumAdmin(leader.replica.log.driver)
                await admin.transfer(without, deadline_s=HAND_OVER_DEADLINE_S)
                await copied_by(leader, 2, first)
                async with asyncio.timeout(SHADOW_LIMITS.hand_over_every_s + MOVED_WITHIN_S):
                    while site.kafka.in_topic() < 2 * first + 4:
                        await asyncio.sleep(0.1)
                assert await leader_id(site) != without

    run_virtually(main)


def test_a_switch_that_no_voter_can_carry_out_is_told_once_and_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with site_of(tmp_path, brokers=0) as (site, without):
            site.begin()
            await site.phase(SWITCHING)
            await asyncio.sleep(TOLD_WITHIN_S)
            told = site.problems()
            assert [number for number, some in told.items() if some] == [without]
            ((problem,),) = [some for some in told.values() if some]
            assert (problem.area, problem.name) == (ProblemArea.MIGRATION, None)
            assert problem.text.endswith(f"waiting until no broker writes: {NO_BROKER}")
            assert problem.text.startswith("SWITCHING for ")
            await site.until_phase(KAFKA, DEADLINE_S)
            assert NO_BROKER in site.nodes[0].manager.migration().why
            await asyncio.sleep(TOLD_WITHIN_S)
            assert not any(site.problems().values())

    run_virtually(main)
    lines = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert [NO_BROKER in each for each in lines] == [True], lines


def test_a_topic_that_no_voter_can_keep_up_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until a voter beside a broker is there again."""

    async def main() -> None:
        async with site_of(tmp_path, brokers=1) as (site, _):
            site.begin()
            await site.phase(SWITCHING)
            await site.until_phase(QUORUM, MOVED_WITHIN_S)
            (beside,) = site.kafka.broker_ids
            site.network.isolate(beside, NODES)
            rest = [each for each in site.nodes if each.replica.node_id != beside]
            leader = await leading(rest)
            await copied_by(leader, 2)
            await asyncio.sleep(TOLD_WITHIN_S)
            told = site.problems()
            assert [number for number, some in told.items() if some] == [leader.replica.node_id]
            ((problem,),) = [some for some in told.values() if some]
            assert (problem.area, problem.name) == (ProblemArea.MIGRATION, None)
            assert problem.text == f"Kafka's metadata topic is not kept up to date: {NO_BROKER}"
            lag = leader.manager.shadow_lag()
            assert lag is not None
            assert lag.records == 4
            site.network.cut.clear()
            async with asyncio.timeout(MOVED_WITHIN_S):
                while any(each.manager.shadow_lag() != NO_LAG for each in site.nodes):
                    await asyncio.sleep(0.1)
            assert site.kafka.in_topic() == 4
            assert await leader_id(site) == beside
            assert not any(site.problems().values())

    run_virtually(main)
    lines = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert [NO_BROKER in each for each in lines] == [True], lines
