"""The kept high watermark, which proves what was committed of an active file that left its log."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

import rlm.copy.active_hold
from rlm.leadership.leadership import Leads, NotLeading
from tests.rlm.copy.test_active_hold import links, quiet_log, retention_takes_all
from tests.rlm.copy.test_active_hold_and_elections import let_go, starts_over
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


def kept(tmp_path: Path) -> list[str]:
    return [path.read_text() for path in (tmp_path / "hold").rglob("high-watermark")]


@pytest.mark.parametrize("damage", [b"?", None])
def test_a_high_watermark_that_cannot_be_read_is_not_zero(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, damage: bytes | None
) -> None:
    """The broker's file is damaged, or names no such partition: the one seen before stays."""
    path = log.log_dir / "replication-offset-checkpoint"

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
        path.unlink(missing_ok=True)
        retention_takes_all(log, epoch=5)
        async with holding(world, broker=broker) as node:
            assert (units(tmp_path), let_go(node)) == (["0"], [])

    run_virtually(main)


@pytest.mark.parametrize("unreadable", [False, True])
def test_what_came_in_place_of_what_was_cut_is_not_committed_by_a_mark_of_before(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, unreadable: bool
) -> None:
    """The broker writes its high watermarks down every five seconds."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            log.write_across(0, 30, 35, epochs=(0, 2))
            log.set_epochs((0, 0), (2, 30))
            if unreadable:
                (log.log_dir / "replication-offset-checkpoint").unlink()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["cut 30\n"]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0"]
            assert let_go(node) == [(30, 34, "diverged", True)]

    run_virtually(main)


def test_a_disk_that_failed_to_keep_a_lower_mark_is_tried_before_the_epochs_are_renewed(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept one of before the cut, beside the epochs of behind it, would prove what came."""

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "it fails here")

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
            with monkeypatch.context() as broken:
                broken.setattr(rlm.copy.active_hold, "keep_committed", fails)
                log.write_across(0, 30, 35, epochs=(0, 2))
                log.set_epochs((0, 0), (2, 30))
                await asyncio.sleep(A_FEW_SCANS_S)
        starts_over(log, 0, epoch=4)
        async with holding(world, broker=broker) as node:
            assert units(tmp_path) == ["0"]
            assert let_go(node) == [(30, 34, "diverged", True)]

    run_virtually(main)


def test_a_mark_of_a_file_of_which_all_was_cut_is_forgotten_on_the_disk_too(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"]
            log.write_as(0, 35, ((2, 0),))
            log.set_epochs((2, 0))
            await asyncio.sleep(A_FEW_SCANS_S)
        starts_over(log, 0, epoch=4)
        async with holding(world, broker=broker) as node:
            assert units(tmp_path) == []
            assert let_go(node) == [(0, 34, "diverged", True)]

    run_virtually(main)


def test_the_mark_counts_again_once_the_broker_wrote_it_down(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            log.write_across(0, 30, 35, epochs=(0, 2))
            log.set_epochs((0, 0), (2, 30))
            await asyncio.sleep(A_FEW_SCANS_S)
            for committed, mark in ((32, "cut 30\n"), (32, "cut 30\n"), (32, "32\n"), (35, "35\n")):
                log.set_high_watermark(committed)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert kept(tmp_path) == [mark]
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (units(tmp_path), let_go(node)) == (["0"], [])

    run_virtually(main)


def test_a_word_of_an_earlier_epoch_than_the_log_s_proves_nothing(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """Neither what is committed, nor that the log followed."""
    log.write_across(0, 20, 35, epochs=(0, 2))
    log.set_epochs((0, 0), (2, 20))
    log.set_high_watermark(20)
    broker.words["orders", 0] = Leads(1, 35)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            broker.words["orders", 0] = Leads(3, 45)
            starts_over(log, 0, epoch=4)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == ["40"]
            assert (20, 34, "diverged", True) in let_go(node)

    run_virtually(main)


def test_each_quiet_log_has_its_turn_though_a_pass_keeps_few(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rlm.copy.active_hold, "KEEPS_A_PASS", 1)
    for number in range(3):
        other = KafkaLog.create(log.log_dir, "silent", number, entries=((0, 0),))
        other.write(0, end=35)

    async def main() -> None:
        async with holding(new_world(tmp_path, (log.log_dir,)), broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert kept(tmp_path) == ["35\n"] * 4

    run_virtually(main)
