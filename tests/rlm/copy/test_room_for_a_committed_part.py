"""What is committed of a held file that grew unseen is copied aside, which needs room."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

import rlm.local_log.unit_files
from rlm.leadership.leadership import Leads, LocalLogStart
from rlm.local_log.hold_directory import HoldDirectory
from tests.rlm.copy.test_active_hold import quiet_log, tiered
from tests.rlm.copy.test_active_hold_and_elections import let_go, starts_over
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S, holding
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "not twice the room")


def test_a_part_that_has_no_room_for_its_copy_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy asks for twice its size, which a disk with room for the file itself may lack."""
    log = quiet_log(tmp_path)
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
        log.write_as(0, 39, ((0, 0), (1, 33)))
        starts_over(log, 0, epoch=4)
        broker.words["orders", 0] = Leads(4, 45)
        broker.local_start = LocalLogStart(40, 4)
        with monkeypatch.context() as full:
            full.setattr(rlm.local_log.unit_files, "copy_head", no_room)
            async with holding(world, broker=broker) as node:
                await asyncio.sleep(A_FEW_SCANS_S)
                assert let_go(node) == []
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(30))

    run_virtually(main)


def test_a_part_waits_for_room_also_where_no_directory_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is really full has no block for that either."""
    log = quiet_log(tmp_path)
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): Leads(0, 30)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
        log.write_as(0, 39, ((0, 0), (1, 33)))
        starts_over(log, 0, epoch=4)
        broker.words["orders", 0] = Leads(4, 45)
        broker.local_start = LocalLogStart(40, 4)
        with monkeypatch.context() as full:
            full.setattr(HoldDirectory, "_make_aside", no_room)
            async with holding(world, broker=broker) as node:
                await asyncio.sleep(A_FEW_SCANS_S)
                assert let_go(node) == []

    run_virtually(main)
