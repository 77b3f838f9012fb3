"""A hole larger than what is fetched at once is mended in steps, each copied before the next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from kafka_client.replica_answers import Batches, OutOfRange
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.copy.mending import MendLimits
from rlm.leadership.leadership import LocalLogStart, NoAnswer
from rlm.local_log import damage as damages
from rlm.local_log.damage import Damage, LoseRange, Run, Stretch, Survey, next_fill, next_stretch
from rlmm.partition_state import LostOffsets
from tests.rlm.copy.test_head_hole import ALL, Trial, log, remove_all, retain
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.replicas import Cluster, cluster, give_up, remove
from tests.rlm.virtual_time import run_virtually

__all__ = ["log"]


def in_steps(path: Path, log: KafkaLog, brokers: Cluster, *, bytes_max: int = 300) -> Trial:
    """Two batches in each answer, and a cut one."""
    brokers.answer_bytes = 2 * max(map(len, brokers.batches.values())) + 20
    return Trial(path, log, brokers, limits=MendLimits(bytes_max=bytes_max))


async def assert_all_is_there(it: Trial, node: Node, *, segments_min: int) -> None:
    """Every record, in segments that join, and nothing fetched is left."""
    finished = it.finished(node)
    assert (it.lost(node), await it.read(node)) == ([], list(ALL))
    assert len(finished) >= segments_min
    assert all(end + 1 == start for (_, end), (start, _) in pairwise(finished))
    assert list((it.path / "mending").iterdir()) == []


@pytest.mark.parametrize("gone", [(0, 10, 20), (0, 10, 20, 30)])
def test_a_hole_at_the_head_that_is_larger_than_a_step_is_copied_before_retention_passes_it(
    tmp_path: Path, log: KafkaLog, gone: tuple[int, ...]
) -> None:
    it = in_steps(tmp_path, log, cluster(log, b1=[], b2=ALL))

    async def main(node: Node) -> None:
        await assert_all_is_there(it, node, segments_min=5)
        retain(log, *(base for base in (30,) if base not in gone))
        it.broker.local_start = LocalLogStart(40, 0)
        log.set_epochs((0, 40))
        await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
        assert it.lost(node) == []

    it.run(main, after_the_first=lambda: remove_all(log, gone))


def test_files_gone_in_the_middle_that_are_larger_than_a_step_are_copied_behind_what_is_there(
    tmp_path: Path, log: KafkaLog
) -> None:
    it = in_steps(tmp_path, log, cluster(log, b1=[], b2=ALL))
    remove_all(log, (10, 20))

    async def main(node: Node) -> None:
        await assert_all_is_there(it, node, segments_min=5)
        assert it.finished(node)[0][0] == 0
        assert it.finished(node)[0][1] > 9

    it.run(main)


@pytest.mark.parametrize("gone", [(0, 10, 20), (10, 20)])
def test_a_node_that_starts_again_goes_on_behind_the_steps_that_were_copied(
    tmp_path: Path, log: KafkaLog, gone: tuple[int, ...]
) -> None:
    """What those of a former life had fetched is not fetched for ever."""
    brokers = cluster(log, b1=[], b2=range(18))
    it = in_steps(tmp_path, log, brokers)
    remove_all(log, gone)

    async def lived() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        world.replicas, world.mend_limits = it.brokers, it.limits
        async with world.boot(data_plane=True, broker=it.broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert 9 < it.finished(node)[-1][1] < 18
            assert it.why_not(node)[0] is WhyNot.BLOCKED
        brokers.brokers |= {2: ALL, 3: []}
        async with world.boot(data_plane=True, broker=it.broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            await assert_all_is_there(it, node, segments_min=5)

    brokers.brokers[3] = None
    run_virtually(lived)


@dataclass(slots=True)
class Spied(Cluster):
    """Remembers how much was on the disk at most."""

    directory: Path = Path()
    most_bytes: int = 0

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        sizes = [path.stat().st_size for path in self.directory.glob("*.log")]
        self.most_bytes = max(self.most_bytes, *sizes, 0)
        return await Cluster.fetch(self, node_id, partition, offset)


def test_what_one_step_fetched_is_gone_before_the_next_one_is_asked_for(
    tmp_path: Path, log: KafkaLog
) -> None:
    known = cluster(log, b2=ALL)
    brokers = Spied(known.brokers, known.batches, directory=tmp_path / "mending")
    it = in_steps(tmp_path, log, brokers)

    async def main(node: Node) -> None:
        await assert_all_is_there(it, node, segments_min=5)
        assert 0 < brokers.most_bytes <= 300 + brokers.answer_bytes

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10, 20, 30)))


def test_within_a_step_what_one_replica_lacks_comes_from_the_next_and_the_rest_waits(
    tmp_path: Path, log: KafkaLog
) -> None:
    has = [each for each in ALL if each not in (13, 14, 25)]
    it = in_steps(tmp_path, log, cluster(log, b1=has, b2=[12, 13, *range(30, 40)]))

    async def main(node: Node) -> None:
        assert (it.lost(node), it.finished(node)[-1]) == ([], (0, 9))
        await give_up(node)
        await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
        assert (it.lost(node), it.finished(node)[-1][1] < 25) == ([(14, 14)], True)
        await give_up(node)
        await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
        assert it.lost(node) == [(14, 14), (25, 25)]
        assert await it.read(node) == [each for each in ALL if each not in (14, 25)]

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10, 20, 30)))


def test_nothing_beyond_a_step_is_lost_while_a_replica_is_down(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=range(16), b2=None)
    it = in_steps(tmp_path, log, brokers)

    async def main(node: Node) -> None:
        assert it.lost(node) == []
        assert it.why_not(node)[0] is WhyNot.BLOCKED
        brokers.brokers[2] = ALL
        await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
        await assert_all_is_there(it, node, segments_min=5)

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10, 20)))


def test_a_damaged_segment_in_a_lost_range_is_filled_step_by_step(
    tmp_path: Path, log: KafkaLog
) -> None:
    """A disk came back with the segment's head; another replica has the rest by now."""
    brokers = cluster(log, b1=[*range(10), *range(20, 40)])
    brokers.starts = {1: 20}
    it = in_steps(tmp_path, log, brokers, bytes_max=100)
    kept = log.log_bytes(10)
    remove(log, 10)

    async def main(node: Node) -> None:
        assert it.lost(node) == [(10, 19)]
        brokers.brokers[2] = range(10, 40)
        (log.directory / f"{10:020d}.log").write_bytes(kept[: len(kept) // 10 * 3])
        await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
        await assert_all_is_there(it, node, segments_min=6)

    it.run(main)


FILE = Path("own.log")
FETCHED = Path("fetched.log")


def damage_of(*runs: Run, missing: tuple[tuple[int, int], ...] = ()) -> Damage:
    """Of a segment [0, 40)."""
    return Damage(0, 40, 0, Survey((), ((0, 39),), (), -1), fetched=runs, gone=missing)


def test_nothing_is_decided_beyond_what_was_asked_for() -> None:
    known = replace(damage_of(Run(0, 9, FETCHED, 0, 100)), asked_below=10)
    assert (known.missing, known.goes_on) == ((), True)
    assert next_stretch(known, 0, ()) == Stretch(0, 9, known.fetched)
    assert next_stretch(known, 10, ()) is None
    behind = replace(damage_of(Run(15, 19, FETCHED, 0, 50)), asked_from=10, asked_below=20)
    assert behind.missing == ((10, 14),)
    assert next_stretch(behind, 10, ()) is None
    assert next_stretch(replace(behind, gone=((10, 14),)), 10, ()) == LoseRange(10, 14)
    assert next_stretch(behind, 15, (LostOffsets(10, 14, "why"),)) == Stretch(
        15, 19, behind.fetched
    )
    assert next_stretch(replace(behind, gone=((10, 14),)), 5, ()) is None


def test_what_is_too_large_for_one_segment_of_the_tier_is_copied_as_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker's file of 1 GiB and as much that was fetched do not fit the size in a record."""
    monkeypatch.setattr(damages, "STRETCH_BYTES_MAX", 100)
    own = Run(0, 9, FILE, 0, 90)
    fetched = (
        Run(10, 11, FETCHED, 0, 20),
        Run(12, 29, FETCHED, 20, 80),
        Run(30, 39, FETCHED, 100, 1),
    )
    known = Damage(0, 40, 90, Survey((own,), ((10, 39),), (), -1), fetched=fetched)
    found, at = [], 0
    while at < 40:
        part = next_stretch(known, at, ())
        assert isinstance(part, Stretch)
        found.append((part.first, part.last, part.size_bytes))
        at = part.last + 1
    assert found == [(0, 9, 90), (10, 29, 100), (30, 39, 1)]
    lost = (LostOffsets(0, 35, "why"),)
    assert next_fill(known, 40, lost, 0) == Stretch(0, 9, (own,))
    assert next_fill(known, 40, (LostOffsets(31, 35, "why"),), 0) == Stretch(30, 39, fetched[2:])
    assert next_fill(known, 20, (LostOffsets(31, 35, "why"),), 0) is None


@dataclass(slots=True)
class SlowCluster(Cluster):
    """Broker 2 needs more than a minute for two batches."""

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        if node_id == 2:
            await asyncio.sleep(70)
        return await Cluster.fetch(self, node_id, partition, offset)


def test_a_hole_that_takes_longer_than_the_deadline_is_copied_as_far_as_each_step_got(
    tmp_path: Path, log: KafkaLog
) -> None:
    has = [*range(10), *range(20, 40)]
    quick = cluster(log, b1=has, b2=ALL)
    slow = SlowCluster(quick.brokers, quick.batches, answer_bytes=260)
    remove(log, 10)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        world.replicas = slow
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(3600)
            finished = sorted(node.finished(log.partition))
            assert (finished[0][0], finished[-1][1]) == (0, 39)
            assert all(end + 1 == start for (_, end), (start, _) in pairwise(finished))
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert state.lost_ranges == ()

    run_virtually(main)
