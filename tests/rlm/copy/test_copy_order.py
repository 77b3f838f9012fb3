"""The order to copy a held segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlm.control.pool_port import PoolPort
from rlm.copy.copier import CopyOrder
from rlm.copy.copy_order import order_of
from rlm.copy.copy_plan import CopySegment
from rlm.copy.mending import Mender
from rlm.copy.partition_work import PartitionWork
from rlm.leadership.leadership import OwnClaim
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlm.local_log.segment_facts import segment_epochs
from rlmm.partition_state import LostOffsets
from tests.rlm.planner_facts import ONE_EPOCH, PARTITION, epochs, state


@dataclass(frozen=True, slots=True)
class Held:
    """A held segment from 4 to 10, known from 6 on, and the log that begins at 20."""

    unit: Unit
    work: PartitionWork

    async def order(self, recorded: Epochs) -> CopyOrder:
        lost = LostOffsets(0, 19, "why")
        known = state(lineage=recorded, next_offset=20, lost=(lost,))
        step = CopySegment(4, 10, 100, fills_lost_range=True)
        order = await order_of(self.work, known, step, Mender(cast(PoolPort, None)))
        assert order is not None
        assert order.segment == self.unit.segment
        return order


def held(*entries: tuple[int, int], live: int) -> Held:
    last = LocalSegment(20, Path("log") / "20.log", 100, None)
    own = epochs((live, 20))
    log = LocalPartition(PARTITION, Path("log"), (last,), own, b"", None, None, (), 20)
    linked = LocalSegment(4, Path("hold") / "4.log", 100, 10, first_known_offset=6)
    unit = Unit(PARTITION, linked, epochs(*entries), 4, True, live)
    work = PartitionWork(PARTITION, units=(unit,), local=log, claim=OwnClaim(100, live))
    return Held(unit, work)


async def test_a_held_segment_below_the_first_recorded_epoch_has_that_epoch() -> None:
    """The claims' checkpoints had lost their heads: an epoch's start is only ever wrong upwards."""
    order = await held((0, 6), live=0).order(epochs((0, 20)))
    assert segment_epochs(order.lineage, 6, 10) == epochs((0, 6))
    assert order.segment.first_known_offset == 6
    assert order.lineage != ONE_EPOCH  # nothing is said of offsets that DeleteRecords took


async def test_a_held_segment_has_its_own_epochs_below_the_first_recorded_one() -> None:
    """The copy would be refused for ever: these are the epochs of the files it is made from."""
    order = await held((2, 6), (3, 8), live=3).order(epochs((3, 9)))
    assert order.lineage == epochs((2, 6), (3, 8))


@pytest.mark.parametrize(
    ("begins", "known"),
    [pytest.param(20, -1, id="at its base"), pytest.param(23, 23, id="in it, by DeleteRecords")],
)
async def test_what_delete_records_left_of_the_brokers_own_is_told_by_its_first_epoch(
    begins: int, known: int
) -> None:
    own = LocalSegment(20, Path("log") / "20.log", 100, 30)
    active = LocalSegment(30, Path("log") / "30.log", 100, None)
    recorded = epochs((1, 28))  # as of a claim whose checkpoint had lost its head
    log = LocalPartition(
        PARTITION, Path("log"), (own, active), epochs((1, begins)), b"", None, None, (), 30
    )
    work = PartitionWork(PARTITION, local=log, claim=OwnClaim(100, 1))
    step = CopySegment(20, 30, 100)
    now = state(lineage=recorded, next_offset=20)
    order = await order_of(work, now, step, Mender(cast(PoolPort, None)))
    assert order is not None
    assert order.segment == replace(own, first_known_offset=known)
    assert (order.from_links, order.lineage) == (False, epochs((1, begins)))
