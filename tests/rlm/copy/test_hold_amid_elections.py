"""Sealed held segments amid elections: one that was cut off is never copied, others are."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from rlm.copy.hold import HoldLimits
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading, TopicConfig
from tests.rlm.copy.test_active_hold import links, quiet_log, tiered
from tests.rlm.copy.test_active_hold_and_elections import let_go, starts_over
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S, Outage, holding, units
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize(("restarts", "is_full"), [(False, False), (True, False), (False, True)])
def test_that_an_unclean_leader_cut_it_off_is_remembered_when_its_head_has_gone(
    tmp_path: Path, restarts: bool, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody claimed for epoch 1, which began at 10, before its log began at 40. The full disk has
    no room for the mark.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    def head_goes() -> None:
        for base in (0, 10, 25):
            log.delete_segment(base)
        log.set_epochs((1, 40), (2, 45))
        broker.words["orders", 0] = Leads(2, 45)
        broker.local_start = LocalLogStart(40, 1)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            assert units(tmp_path) == ["0", "10", "20"]
            if is_full:
                monkeypatch.setattr(Path, "touch", _no_room)
            broker.words["orders", 0] = NotLeading()
            for base in (10, 20, 30):
                log.delete_segment(base)
            log.write(10, 25, 40, end=45, epoch=1)
            log.set_epochs((0, 0), (1, 10))
            log.set_high_watermark(10)
            await asyncio.sleep(A_FEW_SCANS_S)
            if not restarts:
                head_goes()
                await asyncio.sleep(A_FEW_SCANS_S)
                outage.lasts = False
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert tiered(node, log) == set(range(10))
        if restarts:
            head_goes()
            outage.lasts = False
            async with holding(world, outage, broker=broker) as node:
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert tiered(node, log) == set(range(10))
        assert units(tmp_path) == []
        assert {(10, 19, "diverged", True), (20, 29, "diverged", True)} <= set(let_go(node))

    run_virtually(main)


def _no_room(path: Path, **_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_second_unclean_election_brings_back_what_the_first_one_cut_off(tmp_path: Path) -> None:
    """Retention takes it before the next look, and the log goes on in the epoch of the unit."""
    log = quiet_log(tmp_path, 0, 10, 20)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            broker.words["orders", 0] = NotLeading()
            for base in (10, 20, 30):
                log.delete_segment(base)
            log.write(10, 25, 40, end=45, epoch=1)
            log.set_epochs((0, 0), (1, 10))
            await asyncio.sleep(A_FEW_SCANS_S)
            for base in (0, 10, 25, 40):
                log.delete_segment(base)
            log.write(30, end=35)
            log.set_epochs((0, 30), (2, 35))
            broker.words["orders", 0] = Leads(2, 35)
            broker.local_start = LocalLogStart(30, 0)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(30))

    run_virtually(main)


@pytest.mark.parametrize("answers", [True, False])
def test_what_clean_elections_and_retention_pass_while_the_node_is_down_is_copied(
    tmp_path: Path, answers: bool
) -> None:
    """A clean leader cuts one batch of the follower's active file, which goes on in it; this broker
    comes to lead behind it, and its node, started right behind it, hears of that late.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker):
            broker.words["orders", 0] = NotLeading()
            log.write_across(30, 34, 38, epochs=(0, 1))
            log.set_epochs((0, 0), (1, 34))
            log.set_high_watermark(36)
            await asyncio.sleep(A_FEW_SCANS_S)
        log.write_across(30, 34, 40, epochs=(0, 1))
        for base in (0, 10, 20, 30):
            log.delete_segment(base)
        log.write(40, end=45, epoch=2)
        log.set_epochs((2, 40))
        broker.local_start = LocalLogStart(40, 2)
        broker.words = {("orders", 0): Leads(2, 45)} if answers else {}
        async with holding(world, outage, broker=broker) as node:
            broker.words["orders", 0] = Leads(2, 45)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(40))
            assert {why for *_, why, _ in let_go(node)} == {"copied"}

    run_virtually(main)


@pytest.mark.parametrize(("bytes_max", "gone"), [(2**40, []), (0, [(0, 34, "not_tiered", False)])])
def test_what_nothing_proves_of_a_topic_that_is_left_out_goes_when_room_is_needed(
    tmp_path: Path, bytes_max: int, gone: list[tuple[int, int, str, bool]]
) -> None:
    """Nobody asks the broker for its word on such a topic, which may be left out by a mistake."""
    log = quiet_log(tmp_path)
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): NotLeading()})
    limits = HoldLimits(bytes_max, free_bytes_min=1)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker, hold=limits) as node:
            broker.config = TopicConfig("compact", -1, -1, False)
            await asyncio.sleep(A_FEW_SCANS_S)
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert let_go(node) == gone
            assert links(tmp_path) == ([] if gone else ["0"])

    run_virtually(main)


@pytest.mark.parametrize("written_to", [25, 28])
def test_what_came_in_place_of_a_cut_is_copied_though_the_cut_is_told_late(
    tmp_path: Path, written_to: int
) -> None:
    """The broker says nothing until what came has left its log, too, which goes on in another
    epoch.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            log.delete_segment(30)
            log.write_as(20, written_to, ((0, 0), (2, 25)))
            for base in (0, 10, 20):
                log.delete_segment(base)
            log.write(30, end=40, epoch=4)
            log.write_across(40, 43, 45, epochs=(4, 6))
            log.set_epochs((4, 30), (6, 43))
            log.set_high_watermark(45)
            broker.words = {}
            broker.local_start = LocalLogStart(30, 4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20", "30"]
            assert links(tmp_path) == ["40"]
            for base in (30, 40):
                log.delete_segment(base)
            log.write(45, end=50, epoch=6)
            log.set_epochs((6, 45))
            broker.words["orders", 0] = Leads(6, 50)
            broker.local_start = LocalLogStart(45, 6)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(25)) | set(range(30, 45))

    run_virtually(main)


def test_a_sealed_file_that_a_later_leader_brings_back_is_copied_though_another_shows_a_cut(
    tmp_path: Path,
) -> None:
    """Between two looks an unclean leader cut the log at 15, and retention took that; the next one
    has the log as it was, which the broker fetched again.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    log.write(30, end=35, epoch=2)
    log.set_epochs((0, 0), (2, 30))
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(2, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            assert units(tmp_path) == ["0", "10", "20"]
            for base in (20, 30):
                log.delete_segment(base)
            log.write_as(10, 18, ((0, 0), (3, 15)))
            for base in (0, 10):
                log.delete_segment(base)
            await goes_on(log, broker, outage, from_offset=30)
            assert tiered(node, log) == set(range(15)) | set(range(20, 40))

    run_virtually(main)


def test_an_active_file_that_a_later_leader_brings_back_is_copied_though_another_shows_a_cut(
    tmp_path: Path,
) -> None:
    """It ends where epoch 2 was seen to begin."""
    log = quiet_log(tmp_path, 0, 10, 20)
    log.set_epochs((0, 0), (2, 35))
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(2, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker) as node:
            assert (units(tmp_path), links(tmp_path)) == (["0", "10", "20"], ["30"])
            log.delete_segment(30)
            log.write_as(20, 28, ((0, 0), (3, 25)))
            for base in (0, 10, 20):
                log.delete_segment(base)
            await goes_on(log, broker, outage, from_offset=35)
            assert tiered(node, log) == set(range(25)) | set(range(30, 40))

    run_virtually(main)


def test_what_a_broker_said_as_the_leader_of_an_earlier_epoch_commits_nothing(
    tmp_path: Path,
) -> None:
    """It led epoch 0 up to 40; an unclean leader's log has taken its place since, from 10 on."""
    log = quiet_log(tmp_path, 0, 10, 20)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 40)})
    for base in (10, 20, 30):
        log.delete_segment(base)
    log.write(10, 25, 40, end=45, epoch=1)
    log.set_epochs((0, 0), (1, 10))
    log.set_high_watermark(10)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0"]
            broker.words["orders", 0] = Leads(1, 40)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "25"]

    run_virtually(main)


async def goes_on(log: KafkaLog, broker: FakeBroker, outage: Outage, *, from_offset: int) -> None:
    """The log begins in epoch 2 at that offset, leader 5 goes on in it, and the outage ends."""
    log.write(from_offset, end=40, epoch=2)
    log.write(40, end=45, epoch=5)
    log.set_epochs((2, from_offset), (5, 40))
    log.set_high_watermark(45)
    broker.words["orders", 0] = Leads(5, 45)
    broker.local_start = LocalLogStart(from_offset, 2)
    await asyncio.sleep(A_FEW_SCANS_S)
    outage.lasts = False
    await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
