"""Where a repair finds a whole copy, and what it says where it could not look."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_client.replica_answers import Batches, OutOfRange
from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import ProblemArea
from rlm.data_plane import segment_gathering
from rlm.leadership.leadership import NoAnswer
from rlm.repair import replica_gathering
from rlm.repair.repair_run import Outcome
from rlmm.segment import RemoteLogSegmentMetadata
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectVersion
from tests.rlm.held_segments import ROOM, retention
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, Steps, new_world
from tests.rlm.repairing import (
    LOOK,
    assert_tidy,
    copied,
    delete,
    everything,
    keys_of,
    only,
    row_at,
    whole,
)
from tests.rlm.replicas import Cluster, cluster
from tests.rlm.virtual_time import run_virtually


def test_segments_that_begin_and_end_elsewhere_have_the_same_batches(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Another replica, which leads now, rolled at other offsets."""

    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            await node.store.damage(keys_of(row_at(node, orders, 10)).log)
            for base in (0, 10, 20, 30):
                orders.delete_segment(base)
            orders.write(0, 5, 13, 17, end=35)
            async with asyncio.timeout(60):
                await node.remote_log.start()
                await asyncio.sleep(30)
            told = await only(node)
            assert (told.outcome, told.source) == (Outcome.REPAIRED, "the broker's segments")
            await assert_tidy(node)

    run_virtually(main)


def test_what_the_broker_has_not_any_more_may_be_held(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        steps = Steps()
        async with world.boot(hook=steps, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            # What is copied is let go; a unit that is there again is found by the next look.
            told = await only(node, LOOK)
            assert told.outcome is Outcome.WOULD
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(30)
            told = await only(node)
            assert told.outcome is Outcome.UNREPAIRABLE
            assert told.text.startswith("no source has a whole copy: the broker's segments: ")
            assert node.repairs.unrepairable == 1
            (problem,) = node.repairs.problems()
            assert problem.area is ProblemArea.DAMAGE
            assert "without a whole copy anywhere" in problem.text
            assert row_at(node, orders, 10) == old, "it stays as it is"

    run_virtually(main)


@pytest.mark.parametrize("gone", [False, True], ids=["damaged", "gone"])
def test_an_earlier_version_of_the_object_is_a_source(
    tmp_path: Path, orders: KafkaLog, gone: bool
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders, versioned=True) as node:
            wanted = whole(orders)
            keys = keys_of(row_at(node, orders, 10))
            for key in keys.all():
                await (delete(node.store, key) if gone else node.store.damage(key))
            retention(orders, 0, 10, start=20)
            await node.remote_log.start()
            await asyncio.sleep(30)
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert told.source.startswith("version ")
            assert await everything(node, orders) == wanted
            await assert_tidy(node)

    run_virtually(main)


def test_a_local_segment_that_is_not_the_same_bytes_is_no_source(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            old = row_at(node, orders, 10)
            await node.store.damage(keys_of(old).log)
            orders.damage(10)
            told = await only(node)
            assert told.outcome is Outcome.UNREPAIRABLE
            assert "the broker's segments: CRC32C " in told.text
            assert row_at(node, orders, 10) == old

    run_virtually(main)


def test_a_full_disk_is_no_answer_about_the_sources(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes, at: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            await node.store.damage(keys_of(row_at(node, orders, 10)).log)
            with monkeypatch.context() as patch:
                patch.setattr(segment_gathering, "_write_at", full)
                told = await only(node)
            assert told.outcome is Outcome.FAILED
            assert "No space left on device" in told.text
            assert "make room" in told.text
            assert node.repairs.unrepairable == 0
            assert (await only(node)).outcome is Outcome.REPAIRED

    run_virtually(main)


def test_a_store_that_does_not_answer_is_no_answer_about_the_sources(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(self: MemoryStore, key: str) -> list[ObjectVersion]:
        raise RetryLater("the store is away")

    async def main() -> None:
        async with copied(tmp_path, orders) as node:
            await node.store.damage(keys_of(row_at(node, orders, 10)).log)
            orders.damage(10)
            with monkeypatch.context() as patch:
                patch.setattr(MemoryStore, "versions", away)
                told = await only(node)
            assert told.outcome is Outcome.FAILED
            assert "the store is away" in told.text
            assert (await only(node)).outcome is Outcome.UNREPAIRABLE

    run_virtually(main)


@asynccontextmanager
async def only_elsewhere(
    tmp_path: Path, orders: KafkaLog, replicas: Cluster
) -> AsyncIterator[tuple[Node, RemoteLogSegmentMetadata]]:
    """The segment at 10, damaged in the tier and on this broker's disk."""
    async with copied(tmp_path, orders, replicas=replicas) as node:
        row = row_at(node, orders, 10)
        await node.store.damage(keys_of(row).log)
        orders.damage(10)
        yield node, row


def test_another_replica_has_what_nothing_at_hand_has(tmp_path: Path, orders: KafkaLog) -> None:
    replicas = cluster(orders, b1=(), b2=range(35))
    replicas.damage = lambda node_id, data: data if node_id == 2 else b""
    wanted = whole(orders)

    async def main() -> None:
        async with only_elsewhere(tmp_path, orders, replicas) as (node, old):
            for key in (keys_of(old).indexes, keys_of(old).manifest):
                await node.store.damage(key)
            proposed = len(node.proposed)
            told = await only(node, LOOK)
            assert (told.outcome, told.source) == (Outcome.WOULD, "the replica on broker 2")
            assert len(node.proposed) == proposed
            told = await only(node)
            assert (told.outcome, told.source) == (Outcome.REPAIRED, "the replica on broker 2")
            assert told.tried[0].startswith("the broker's segments: CRC32C ")
            assert await everything(node, orders) == wanted
            assert not list((tmp_path / "repair").glob("*")), "what was put together is gone"
            await assert_tidy(node)

    run_virtually(main)


@pytest.mark.parametrize(
    ("has", "start", "why"),
    [
        (range(15, 35), 15, "the replica on broker 2: its log has no whole batch at 10"),
        (range(35), 0, "the replica on broker 2: its log at byte 0: "),
        ((*range(12), *range(13, 35)), 0, " bytes, not "),
    ],
    ids=["later", "damaged", "with-a-hole"],
)
def test_a_replica_that_has_other_bytes_is_no_source(
    tmp_path: Path, orders: KafkaLog, has: Sequence[int], start: int, why: str
) -> None:
    replicas = cluster(orders, b2=has)
    replicas.starts[2] = start
    if "at byte" in why:
        replicas.damage = lambda _, data: data[:60] + bytes([data[60] ^ 0xFF]) + data[61:]

    async def main() -> None:
        async with only_elsewhere(tmp_path, orders, replicas) as (node, old):
            told = await only(node)
            assert told.outcome is Outcome.UNREPAIRABLE, told
            assert why in told.text
            assert row_at(node, orders, 10) == old

    run_virtually(main)


def test_a_replica_that_does_not_answer_may_have_it(tmp_path: Path, orders: KafkaLog) -> None:
    replicas = cluster(orders, b2=None)

    async def main() -> None:
        async with only_elsewhere(tmp_path, orders, replicas) as (node, _):
            told = await only(node)
            assert told.outcome is Outcome.FAILED
            assert "some sources did not answer: the replica on broker 2: it is down" in told.text
            assert node.repairs.unrepairable == 0
            replicas.brokers[2] = range(35)
            assert (await only(node)).outcome is Outcome.REPAIRED

    run_virtually(main)


def test_a_replica_that_hangs_is_left_at_its_deadline(tmp_path: Path, orders: KafkaLog) -> None:
    class Hanging(Cluster):
        async def fetch(
            self, node_id: int, partition: TopicIdPartition, offset: int
        ) -> Batches | OutOfRange | NoAnswer:
            if node_id == 2:
                await asyncio.Event().wait()
            return await Cluster.fetch(self, node_id, partition, offset)

    usual = cluster(orders, b2=(), b3=range(35))
    replicas = Hanging(usual.brokers, usual.batches)

    async def main() -> None:
        async with only_elsewhere(tmp_path, orders, replicas) as (node, _):
            told = await only(node)
            assert (told.outcome, told.source) == (Outcome.REPAIRED, "the replica on broker 3")

    run_virtually(main)


def test_no_room_for_what_a_replica_answers_is_said(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(replica_gathering, "_append", full)

    async def main() -> None:
        async with only_elsewhere(tmp_path, orders, cluster(orders, b2=range(35))) as (node, _):
            told = await only(node)
            assert told.outcome is Outcome.FAILED
            assert "No space left on device" in told.text
            assert "make room" in told.text

    run_virtually(main)
