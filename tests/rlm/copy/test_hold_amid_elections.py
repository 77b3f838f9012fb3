"""Sealed held segments amid elections: one that was cut off is never copied, others are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from tests.rlm.copy.test_active_hold import quiet_log, tiered
from tests.rlm.copy.test_active_hold_and_elections import let_go
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S, Outage, holding, units
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize("restarts", [False, True])
def test_that_an_unclean_leader_cut_it_off_is_remembered_when_its_head_has_gone(
    tmp_path: Path, restarts: bool
) -> None:
    """Nobody claimed for epoch 1, which began at 10, before its log began at 40."""
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
