"""Marks of before a cut prove nothing also where the last look knew of none that is above it, or
where another file has come since: a look is seconds old, and a busy log's mark is on no disk.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from rlmm.segment import Incarnation
from tests.rlm.copy.test_active_hold import links, quiet_log, retention_takes_all, tiered
from tests.rlm.copy.test_active_hold_and_elections import let_go, starts_over
from tests.rlm.copy.test_kept_high_watermarks import kept
from tests.rlm.copy.test_marks_behind_a_cut import is_cut, is_written_down
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    Outage,
    holding,
    units,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, new_world
from tests.rlm.planner_facts import DIRECTORY
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    return quiet_log(tmp_path)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker({("orders", 0): NotLeading()})


@pytest.mark.parametrize("known", [20, 30, None])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_mark_of_before_a_cut_above_the_known_one_proves_nothing(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, known: int | None, restarts: bool
) -> None:
    """The broker wrote it down since the last look, and then the log was cut."""
    if known is None:
        (log.log_dir / "replication-offset-checkpoint").unlink()
    else:
        log.set_high_watermark(known)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            log.set_high_watermark(35)
            is_cut(log, 40)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 30\n"]
            if not restarts:
                starts_over(log, 0, epoch=4)
                await asyncio.sleep(A_FEW_SCANS_S)
            told = let_go(node)
        if restarts:
            starts_over(log, 0, epoch=4)
            async with holding(world, broker=broker) as node:
                await asyncio.sleep(A_FEW_SCANS_S)
                told += let_go(node)
        assert (units(tmp_path), told) == (["0"], [(30, 39, "diverged", True)])

    run_virtually(main)


def test_the_file_that_a_log_cut_a_moment_ago_was_rolled_to_has_no_mark_of_before(
    tmp_path: Path, broker: FakeBroker
) -> None:
    log = quiet_log(tmp_path)
    log.write(0, end=45)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["45\n"]
            log.write_as(0, 38, ((0, 0), (2, 30)))
            log.write_as(38, 44, ((2, 30),))
            log.set_epochs((0, 0), (2, 30))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == ["38"]
            log.delete_segment(0)
            log.delete_segment(38)
            log.write(50, end=55, epoch=4)
            log.set_epochs((4, 50))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (38, 43, "diverged", True) in let_go(node)

    run_virtually(main)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_log_that_was_seen_empty_amid_that_has_no_mark_of_before(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, in_place: bool
) -> None:
    """All of it was cut off: a look finds no record, and no epoch."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
            if not in_place:
                log.delete_segment(0)
            log.write_as(0, 0, ())
            log.set_epochs()
            await asyncio.sleep(A_FEW_SCANS_S)
            log.write_as(0, 35, ((2, 0),))
            log.set_epochs((2, 0))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 0\n"]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == ([], [(0, 34, "diverged", True)])

    run_virtually(main)


def test_the_file_in_which_a_log_goes_on_was_seen_empty_first(
    tmp_path: Path, broker: FakeBroker
) -> None:
    """The active one was cut off with it, and all of the one before."""
    log = quiet_log(tmp_path, 0, 10, 20)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (kept(tmp_path), links(tmp_path)) == (["35\n"], ["30"])
            log.delete_segment(30)
            log.write_as(20, 20, ())
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == []
            log.write_as(20, 35, ((2, 20),))
            log.set_epochs((0, 0), (2, 20))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (kept(tmp_path), links(tmp_path)) == (["cut 20\n"], ["20"])
            starts_over(log, 0, 10, 20, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (20, 34, "diverged", True) in let_go(node)

    run_virtually(main)


def test_a_log_that_had_no_record_has_no_mark_of_before_a_cut_of_those_that_came(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """They came, were committed, and were cut off, all since the last look, which found none."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            retention_takes_all(log)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == []
            log.set_high_watermark(40)
            log.write_as(35, 42, ((0, 35), (2, 37)))
            log.set_epochs((0, 35), (2, 37))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (links(tmp_path), kept(tmp_path)) == (["35"], ["cut 37\n"])

    run_virtually(main)


def test_what_was_written_behind_such_a_cut_and_cut_off_is_not_copied(
    tmp_path: Path, broker: FakeBroker
) -> None:
    """The unclean leader of epoch 2 claims the partition, and loses what nobody committed; the
    broker of the follower leads after the election behind that.
    """
    log = quiet_log(tmp_path)
    log.set_high_watermark(20)
    epochs = ((0, 0), (2, 30))
    at_the_leader = KafkaLog.create(new_log_dir(tmp_path / "leader"), "orders", entries=epochs)
    at_the_leader.write_as(0, 40, epochs)
    at_the_leader.set_high_watermark(30)
    leader = FakeBroker({("orders", 0): Leads(2, 30)})
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            log.set_high_watermark(35)
            is_cut(log, 40)
            beside = replace(world, log_dirs=(at_the_leader.log_dir,))
            other, _ = beside.node(node.metadata, Incarnation(1, DIRECTORY, 1), broker=leader)
            await other.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert state.lineage == epochs
            leader.words["orders", 0] = NotLeading()
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            log.set_epochs((4, 40), (5, 45))
            broker.words["orders", 0] = Leads(5, 45)
            broker.local_start = LocalLogStart(40, 4)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(30))

    run_virtually(main)


def test_a_node_that_starts_behind_a_cut_and_knew_nothing_doubts_the_mark_of_before(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """It never looked at the log before, and the broker did not write its file since."""
    log.write_as(0, 40, ((0, 0), (2, 30)))
    log.set_epochs((0, 0), (2, 30), age_s=0)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 0\n"]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == ([], [(0, 39, "diverged", True)])

    run_virtually(main)


def test_a_node_that_starts_again_behind_a_cut_that_it_did_not_write_down_doubts_that_mark(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """The log was cut above the mark that was known, and is busy; the mark of before comes then."""
    log.set_high_watermark(20)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log, 40)
            await asyncio.sleep(LIMITS.scan_interval_s)
            assert kept(tmp_path) == ["20\n"]
        log.set_epochs((0, 0), (2, 30), age_s=0)
        log.set_high_watermark(35)
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 20\n"]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert let_go(node) == [(20, 39, "diverged", True)]

    run_virtually(main)


def test_such_a_doubt_ends_with_the_third_write(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    log.set_epochs((0, 0), age_s=14)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            for mark in ("cut 0\n", "cut 0\n", "35\n"):
                await is_written_down(log, 35, times=1)
                assert kept(tmp_path) == [mark]

    run_virtually(main)


def test_marks_of_behind_a_cut_count_though_the_log_is_rolled_at_every_look(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """The links of all its files wait for the same three writes, and no longer."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log, 40)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 30\n"]
            for base, mark in ((40, "cut 30\n"), (50, "cut 30\n"), (60, "70\n"), (70, "80\n")):
                log.write_as(base, base + 10, ((2, 30),))
                log.set_high_watermark(base + 10)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert (links(tmp_path), kept(tmp_path)) == ([str(base)], [mark])

    run_virtually(main)


@pytest.mark.parametrize("leads", [True, False])
def test_behind_an_election_that_cut_nothing_a_mark_below_counts_at_once(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, leads: bool
) -> None:
    """Of what the new leader wrote the broker's file tells from its third write on; at once what
    the broker says itself.
    """
    log.set_high_watermark(20)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            log.write_across(0, 35, 40, epochs=(0, 1))
            log.set_epochs((0, 0), (1, 35))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 20\n"]
            if leads:
                broker.words["orders", 0] = Leads(1, 38)
            marks = ("cut 38\n", "cut 38\n") if leads else ("cut 33\n", "cut 35\n")
            for offset, mark in zip((33, 38, 40), (*marks, "40\n"), strict=True):
                await is_written_down(log, offset, times=1)
                assert kept(tmp_path) == [mark]

    run_virtually(main)
