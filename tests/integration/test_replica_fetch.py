"""What the leader's disk lost is fetched from a follower of stock brokers, by the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from kafka_client.replica_answers import Batches, Extent, OutOfRange
from kafka_formats.batch_scan import scan
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.mending import Mender
from rlm.copy.replica_fetch import ReplicaFetch
from rlm.data_plane.copy_job import SourceRuns
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.segment_source import SegmentSource
from rlm.data_plane.segment_verification import SegmentVerification
from rlm.leadership.leadership import NoAnswer
from rlm.local_log.damage import Stretch, next_stretch
from rlm.local_log.log_dir import LocalPartition, find_partitions
from tests.integration.test_broker_view import connection_settings, view_of
from tests.real.kafka import REQUEST_DEADLINE_S, KafkaBroker
from tests.real.kafka_clients import NewRecord, produce
from tests.rlm.tier import copy_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "leader") as running:
        yield running


@pytest.fixture(scope="module")
def follower(
    tmp_path_factory: pytest.TempPathFactory, leader: KafkaBroker
) -> Iterator[KafkaBroker]:
    home = tmp_path_factory.mktemp("kafka") / "follower"
    with KafkaBroker(home, node_id=2, controller=leader) as running:
        yield running


@dataclass(slots=True)
class OnlyFrom:
    """Of all replicas, only these are asked: a leader that still has the file open would answer."""

    real: ReplicaFetch
    nodes: Sequence[int]

    async def replicas(self, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
        assigned = await self.real.replicas(partition)
        assert not isinstance(assigned, NoAnswer), assigned
        assert set(self.nodes) < set(assigned)
        return self.nodes

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        return await self.real.fetch(node_id, partition, offset)

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        return await self.real.extent(node_id, partition)

    async def close(self) -> None:
        await self.real.close()


async def replicas(leader: KafkaBroker, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
    async with view_of(connection_settings(leader)) as view:
        return await ReplicaFetch(view).replicas(partition)


async def asked_of_follower(
    leader: KafkaBroker, known: TopicIdPartition, partition: TopicIdPartition, offset: int
) -> Batches | OutOfRange | NoAnswer:
    """What node 2, whose address comes with the replicas of `known`, has of `partition`."""
    async with view_of(connection_settings(leader)) as view:
        fetch = ReplicaFetch(view)
        assert await fetch.replicas(known) == (1, 2)
        try:
            return await fetch.fetch(2, partition, offset)
        finally:
            await fetch.close()


def only_partition(broker: KafkaBroker, topic: str) -> LocalPartition:
    scanned = find_partitions([broker.log_dir], kafka_cluster_id=None)
    (found,) = (each for each in scanned.partitions if each.partition.topic == topic)
    return found


def test_a_segment_that_the_leader_lost_comes_from_its_follower(
    leader: KafkaBroker, follower: KafkaBroker, tmp_path: Path
) -> None:
    new = NewTopic("lost", 1, replica_assignment=[[1, 2]], config={"segment.bytes": "1048576"})
    admin = leader.admin()
    admin.create_topics([new])["lost"].result(REQUEST_DEADLINE_S)
    for number in range(36):
        produce(leader.bootstrap, "lost", 0, [NewRecord(b"%02d" % number * 20_000)] * 3)
    leader.wait_until(lambda: len(leader.segment_files("lost", 0)) >= 4, "the leader rolls")
    leader.wait_until(
        lambda: (
            follower.segment_files("lost", 0)[-1:] != []
            and follower.segment_files("lost", 0)[-1].name
            == leader.segment_files("lost", 0)[-1].name
        ),
        "the follower follows",
    )
    before = only_partition(leader, "lost")
    first, second = before.segments[:2]
    whole = first.log_path.read_bytes() + second.log_path.read_bytes()
    for file in second.log_path.parent.glob(f"{second.base_offset:020d}.*"):
        file.unlink()

    async def mend() -> bytes:
        local = only_partition(leader, "lost")
        segment = local.segments[0]
        assert segment.next_base_offset == second.next_base_offset
        job = replace(copy_job(local, segment), gaps_allowed=False)
        async with view_of(connection_settings(leader)) as view:
            mender = Mender(
                DataPlane({}, now_ms=lambda: 0), OnlyFrom(ReplicaFetch(view), [2]), tmp_path / "m"
            )
            damage = await mender.mend(local.partition, segment, job)
        assert damage.missing == (), damage.text
        assert [run.first for run in damage.fetched[:1]] == [second.base_offset]
        stretch = next_stretch(damage, 0, ())
        assert isinstance(stretch, Stretch)
        mended = replace(job, source=SourceRuns(segment.base_offset, job.next_base_offset,
                                                stretch.runs))  # fmt: skip
        source = SegmentSource(mended)
        try:
            verification, data = SegmentVerification(mended, source), b""
            buffer = bytearray(1 << 20)
            while (part := verification.read_part(buffer)) is not None:
                data += buffer[: part.size_bytes]
            return data
        finally:
            source.close()

    found = asyncio.run(mend())
    assert found == whole
    assert next(scan(found, source="mended")).header.base_offset == 0


def test_a_follower_says_what_it_does_not_reach(leader: KafkaBroker, follower: KafkaBroker) -> None:
    new = NewTopic("short", 1, replica_assignment=[[1, 2]])
    admin = leader.admin()
    admin.create_topics([new])["short"].result(REQUEST_DEADLINE_S)
    produce(leader.bootstrap, "short", 0, [NewRecord(b"x")] * 5)

    partition = only_partition(leader, "short").partition

    def ask(offset: int) -> Batches | OutOfRange | NoAnswer:
        assert asyncio.run(replicas(leader, partition)) == (1, 2)
        return asyncio.run(asked_of_follower(leader, partition, partition, offset))

    leader.wait_until(lambda: isinstance(ask(0), Batches), "the follower has it")
    assert isinstance(ask(5), NoAnswer)
    assert ask(1_000) == OutOfRange()

    async def extent() -> Extent | NoAnswer:
        async with view_of(connection_settings(leader)) as view:
            fetch = ReplicaFetch(view)
            await fetch.replicas(partition)
            try:
                return await fetch.extent(2, partition)
            finally:
                await fetch.close()

    assert asyncio.run(extent()) == Extent(0, 5)


def test_a_topic_that_was_made_again_under_its_name_does_not_answer_for_the_old_one(
    leader: KafkaBroker, follower: KafkaBroker
) -> None:
    admin = leader.admin()
    new = NewTopic("again", 1, replica_assignment=[[1, 2]])

    def made() -> TopicIdPartition:
        admin.create_topics([new])["again"].result(REQUEST_DEADLINE_S)
        produce(leader.bootstrap, "again", 0, [NewRecord(b"x")] * 5)
        return only_partition(leader, "again").partition

    old = made()
    admin.delete_topics(["again"])["again"].result(REQUEST_DEADLINE_S)
    leader.wait_until(lambda: not (leader.log_dir / "again-0").exists(), "the topic goes")
    now = made()
    assert old.topic_id != now.topic_id

    def ask(partition: TopicIdPartition) -> Batches | OutOfRange | NoAnswer:
        return asyncio.run(asked_of_follower(leader, now, partition, 0))

    leader.wait_until(lambda: isinstance(ask(now), Batches), "the follower has it")
    assert ask(old) == NoAnswer("it answered unknown_topic_id")
    asked = asyncio.run(replicas(leader, old))
    assert isinstance(asked, NoAnswer)
    assert "unknown_topic_id" in asked.reason
