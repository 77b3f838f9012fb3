"""Active files that left the log amid elections: no record that a leader cut off is copied."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

import rlm.copy.active_hold
from rlm.control.run_events import HoldReleased
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from rlmm.segment import Incarnation
from tests.rlm.copy.test_active_hold import links, quiet_log, tiered
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    Outage,
    holding,
    units,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import DIRECTORY
from tests.rlm.virtual_time import run_virtually


def starts_over(log: KafkaLog, *bases: int, epoch: int) -> None:
    """The leader's log begins at 40, above this follower's end: it begins anew there."""
    for base in bases:
        log.delete_segment(base)
    log.write(40, end=45, epoch=epoch)
    log.set_epochs((epoch, 40))


def let_go(node: Node) -> list[tuple[int, int, str, bool]]:
    return [
        (each.start, each.end, each.why, each.missed)
        for each in node.events
        if isinstance(each, HoldReleased)
    ]


@pytest.mark.parametrize("leads_at_once", [False, True])
def test_the_next_epoch_in_the_checkpoint_of_a_cut_log_proves_nothing(
    tmp_path: Path, leads_at_once: bool
) -> None:
    """Its first entry begins where the log does, at most; the leader of epoch 1 began at 30. Also
    if this broker comes to lead epoch 2 right behind the look.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    log.set_high_watermark(30)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            assert (units(tmp_path), links(tmp_path)) == (["0", "10", "20"], ["30"])
            broker.words["orders", 0] = NotLeading()
            await asyncio.sleep(A_FEW_SCANS_S)
            starts_over(log, 0, 10, 20, 30, epoch=1)
            broker.words["orders", 0] = Leads(2, 45) if leads_at_once else NotLeading()
            await asyncio.sleep(A_FEW_SCANS_S)
            log.set_epochs((1, 40), (2, 45))
            broker.words["orders", 0] = Leads(2, 45)
            broker.local_start = LocalLogStart(40, 1)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(30))
            assert (30, 34, "diverged", True) in let_go(node)

    run_virtually(main)


@pytest.mark.parametrize("sees_it", [True, False])
def test_a_high_watermark_proves_nothing_of_what_came_in_place_of_what_was_cut(
    tmp_path: Path, sees_it: bool
) -> None:
    """An unclean election cuts committed records, in place; what comes is cut off, too."""
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): NotLeading()})

    def is_cut() -> None:
        log.write_across(0, 30, 35, epochs=(0, 2))
        log.set_epochs((0, 0), (2, 30))
        log.set_high_watermark(30)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            if sees_it:
                is_cut()
                await asyncio.sleep(A_FEW_SCANS_S)
        if not sees_it:
            is_cut()
        starts_over(log, 0, epoch=4)
        async with holding(world, broker=broker) as node:
            assert units(tmp_path) == ["0"]
            assert let_go(node) == [(30, 34, "diverged", True)]

    run_virtually(main)


def test_a_high_watermark_of_another_topic_of_the_name_is_forgotten(tmp_path: Path) -> None:
    """The broker's checkpoint names a deleted topic's for some seconds."""
    log = quiet_log(tmp_path)
    log.set_high_watermark(1_000)
    broker = FakeBroker({("orders", 0): NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            log.set_high_watermark(30)
            await asyncio.sleep(A_FEW_SCANS_S)
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0"]
            assert let_go(node) == [(30, 34, "diverged", True)]

    run_virtually(main)


def test_a_held_file_that_was_written_to_has_to_be_committed_anew(tmp_path: Path) -> None:
    """All between two looks: an unclean election cuts it, in place, the leader of epoch 2 writes
    what nobody commits, and that of epoch 4, which is not heard of, has other records.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    log.set_high_watermark(30)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 30)})
    epochs = ((0, 0), (2, 25))
    at_the_leader = KafkaLog.create(new_log_dir(tmp_path / "leader"), "orders", entries=epochs)
    at_the_leader.write_as(0, 30, epochs)
    leader = FakeBroker({("orders", 0): Leads(2, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            assert units(tmp_path) == ["0", "10", "20"]
            broker.words["orders", 0] = NotLeading()
            await asyncio.sleep(A_FEW_SCANS_S)
            beside = replace(world, log_dirs=(at_the_leader.log_dir,))
            other, _ = beside.node(node.metadata, Incarnation(1, DIRECTORY, 1), broker=leader)
            await other.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert state.lineage == epochs
            leader.words["orders", 0] = NotLeading()
            log.delete_segment(30)
            log.write_as(20, 35, epochs)
            starts_over(log, 0, 10, 20, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20"]
            assert (25, 34, "diverged", True) in let_go(node)
            log.set_epochs((4, 40), (5, 45))
            broker.words["orders", 0] = Leads(5, 45)
            broker.local_start = LocalLogStart(40, 4)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(25))

    run_virtually(main)


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_committed_when_last_seen_of_a_file_that_grew_while_the_node_was_down_is_copied(
    tmp_path: Path, is_known: bool
) -> None:
    """Over elections that nobody looked at: nothing proves the rest, which is let go aloud."""
    log = quiet_log(tmp_path)
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): Leads(0, 30) if is_known else NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == ["0"]
        log.write_as(0, 39, ((0, 0), (1, 33)))
        starts_over(log, 0, epoch=4)
        broker.words["orders", 0] = Leads(4, 45)
        broker.local_start = LocalLogStart(40, 4)
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == (set(range(30)) if is_known else set())
            part = (0, 29, "copied", False) if is_known else (0, 29, "below_log_start", True)
            assert set(let_go(node)) == {(30, 38, "diverged", True), part}
            assert (links(tmp_path), units(tmp_path)) == (["40"], [])

    run_virtually(main)


def test_a_crash_between_the_unit_of_a_part_and_the_end_of_its_link_leaves_one_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = quiet_log(tmp_path)
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): NotLeading()})

    def killed(path: Path) -> None:
        raise OSError(errno.EIO, "killed here", str(path))

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
        log.write_as(0, 39, ((0, 0), (1, 33)))
        starts_over(log, 0, epoch=4)
        with monkeypatch.context() as amid:
            amid.setattr(rlm.copy.active_hold, "remove_links", killed)
            async with holding(world, broker=broker) as node:
                assert (links(tmp_path)[0], units(tmp_path), let_go(node)) == ("0", ["0"], [])
        async with holding(world, broker=broker) as node:
            assert (links(tmp_path), units(tmp_path)) == (["40"], ["0"])
            assert let_go(node) == [(30, 38, "diverged", True)]

    run_virtually(main)
