"""Marks of before a cut prove nothing of what came in its place, and those of behind it do, also
where they have the same value.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rlm.leadership.leadership import Leads, NotLeading
from tests.rlm.copy.test_active_hold import links, quiet_log
from tests.rlm.copy.test_active_hold_and_elections import let_go, starts_over
from tests.rlm.copy.test_kept_high_watermarks import kept
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, holding, units
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    return quiet_log(tmp_path)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker({("orders", 0): NotLeading()})


def is_cut(log: KafkaLog, end: int = 35) -> None:
    """An unclean leader of epoch 2 cuts the log at 30, and it goes on to `end`."""
    log.write_across(0, 30, end, epochs=(0, 2))
    log.set_epochs((0, 0), (2, 30))


async def is_written_down(log: KafkaLog, offset: int, *, times: int = 3) -> None:
    """The broker writes its high watermarks down, at times one look apart."""
    for _ in range(times):
        log.set_high_watermark(offset)
        await asyncio.sleep(A_FEW_SCANS_S)


def part(end: int) -> list[tuple[int, int, str, bool]]:
    return [] if end == 35 else [(end, 34, "diverged", True)]


@pytest.mark.parametrize("committed", [33, 35])
@pytest.mark.parametrize("leads", [True, False])
def test_a_mark_of_behind_the_cut_counts_though_the_look_that_found_it_had_it(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, leads: bool, committed: int
) -> None:
    """The log is quiet from then on: the broker writes it down again and again, or says so as the
    leader in the epoch that came.
    """

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
            is_cut(log)
            log.set_high_watermark(committed)
            if leads:
                broker.words["orders", 0] = Leads(2, committed)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert kept(tmp_path) == [f"cut {committed}\n"]
                broker.words["orders", 0] = NotLeading()
                await asyncio.sleep(A_FEW_SCANS_S)
            else:
                await is_written_down(log, committed, times=4)
                assert kept(tmp_path) == [f"{committed}\n"]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == (["0"], part(committed))

    run_virtually(main)


def test_a_mark_above_the_known_one_counts_once_it_is_of_behind_the_cut(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log, 40)
            await is_written_down(log, 40, times=4)
            assert kept(tmp_path) == ["40\n"]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == (["0"], [])

    run_virtually(main)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_mark_of_before_a_cut_that_is_below_the_known_one_proves_nothing(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, restarts: bool
) -> None:
    """The leader's own word reached further than what it had written down by then."""
    log.set_high_watermark(32)
    broker.words["orders", 0] = Leads(0, 35)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
            broker.words["orders", 0] = NotLeading()
            is_cut(log)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 30\n"]
            if not restarts:
                starts_over(log, 0, epoch=4)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert (units(tmp_path), let_go(node)) == (["0"], part(30))
        if restarts:
            async with holding(world, broker=broker) as node:
                assert kept(tmp_path) == ["cut 30\n"]
                starts_over(log, 0, epoch=4)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert (units(tmp_path), let_go(node)) == (["0"], part(30))

    run_virtually(main)


@pytest.mark.parametrize("stale", [35, 36])
@pytest.mark.parametrize("at_the_look", [False, True])
def test_a_mark_that_was_collected_before_the_cut_and_written_behind_it_proves_nothing(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, stale: int, at_the_look: bool
) -> None:
    """The broker collects all its marks, and then writes them down: one write behind the cut may
    have a mark of before it, also one that no look saw before. A look reads the marks first: that
    write may also come between that and the epochs.
    """

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log, 40)
            await asyncio.sleep(A_FEW_SCANS_S)
            await is_written_down(log, stale, times=2 if at_the_look else 1)
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0"]
            assert let_go(node) == [(30, 39, "diverged", True)]

    run_virtually(main)


def test_a_node_that_is_started_again_amid_that_waits_for_as_many_writes(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """Its first look takes no mark for one of behind the cut; when the log is quiet, it counts."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log)
            await is_written_down(log, 35, times=2)
            assert kept(tmp_path) == ["cut 30\n"]
        async with holding(world, broker=broker):
            await is_written_down(log, 35, times=1)
            assert kept(tmp_path) == ["cut 30\n"]
            await is_written_down(log, 35, times=1)
            assert kept(tmp_path) == ["35\n"]
        async with holding(world, broker=broker) as node:
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == (["0"], [])

    run_virtually(main)


def test_a_clock_that_jumps_back_neither_proves_nor_prevents_anything(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    path = log.log_dir / "replication-offset-checkpoint"

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log)
            await asyncio.sleep(A_FEW_SCANS_S)
            for second, mark in ((900, "cut 30\n"), (200, "cut 30\n"), (205, "35\n")):
                log.set_high_watermark(35)
                os.utime(path, ns=(second * 10**9,) * 2)
                await asyncio.sleep(10 * A_FEW_SCANS_S)
                assert kept(tmp_path) == [mark]

    run_virtually(main)


def test_a_second_cut_amid_that_begins_anew(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """It is above the first one: below it the log is as it was known."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log)
            await is_written_down(log, 35, times=3)
            log.write_as(0, 35, ((0, 0), (2, 30), (3, 32)))
            log.set_epochs((0, 0), (2, 30), (3, 32))
            await is_written_down(log, 35, times=3)
            assert kept(tmp_path) == ["cut 30\n"]
            starts_over(log, 0, epoch=5)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == (["0"], part(30))

    run_virtually(main)


def test_a_word_of_an_epoch_that_the_log_does_not_end_in_proves_nothing_behind_a_cut(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """The broker was asked behind the look: by then its log may be another one."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            is_cut(log)
            broker.words["orders", 0] = Leads(3, 35)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 30\n"]
            log.set_epochs((0, 0), (2, 30), (3, 35))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 35\n"]
            assert links(tmp_path) == ["0"]

    run_virtually(main)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("writes", [0, 2, 3])
def test_the_file_in_which_a_log_goes_on_whose_active_one_was_cut_off_has_no_mark_of_before(
    tmp_path: Path, broker: FakeBroker, writes: int, restarts: bool
) -> None:
    """Its link is a new one, of a file that was sealed before."""
    log = quiet_log(tmp_path, 0, 10, 20)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (kept(tmp_path), links(tmp_path)) == (["35\n"], ["30"])
            log.delete_segment(30)
            log.write_as(20, 35, ((0, 0), (2, 25)))
            log.set_epochs((0, 0), (2, 25))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (kept(tmp_path), links(tmp_path)) == (["cut 25\n"], ["20"])
            await is_written_down(log, 35, times=writes)
            assert kept(tmp_path) == ["35\n" if writes == 3 else "cut 25\n"]
            if not restarts:
                starts_over(log, 0, 10, 20, epoch=4)
                await asyncio.sleep(A_FEW_SCANS_S)
            told = let_go(node)
        if restarts:
            async with holding(world, broker=broker) as node:
                starts_over(log, 0, 10, 20, epoch=4)
                await asyncio.sleep(A_FEW_SCANS_S)
                told += let_go(node)
        assert ((25, 34, "diverged", True) in told) is (writes < 3)

    run_virtually(main)


def test_a_replica_that_came_anew_with_the_same_history_has_its_mark_at_once(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """Another file of the same base and the same epochs: nothing was cut."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            log.delete_segment(0)
            log.write(0, end=35)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (kept(tmp_path), links(tmp_path)) == (["35\n"], ["0"])

    run_virtually(main)
