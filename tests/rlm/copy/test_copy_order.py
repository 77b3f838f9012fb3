"""The order to copy a held segment."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from rlm.control.pool_port import PoolPort
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


async def test_a_held_segment_below_the_first_recorded_epoch_has_that_epoch() -> None:
    """The claims' checkpoints had lost their heads: an epoch's start is only ever wrong upwards."""
    live = LocalSegment(20, Path("log") / "20.log", 100, None)
    log = LocalPartition(PARTITION, Path("log"), (live,), epochs((0, 20)), b"", None, None, (), 20)
    linked = LocalSegment(4, Path("hold") / "4.log", 100, 10, first_known_offset=6)
    unit = Unit(PARTITION, linked, epochs((0, 6)), 4, True, 0)
    work = PartitionWork(PARTITION, units=(unit,), local=log, claim=OwnClaim(100, 0))
    lost = LostOffsets(0, 19, "why")
    recorded = state(lineage=epochs((0, 20)), next_offset=20, lost=(lost,))
    step = CopySegment(4, 10, 100, fills_lost_range=True)
    order = await order_of(work, recorded, step, Mender(cast(PoolPort, None)))
    assert order is not None
    assert order.segment == linked
    assert segment_epochs(order.lineage, order.first_known_offset, 10) == epochs((0, 6))
    assert order.lineage != ONE_EPOCH  # nothing is said of offsets that DeleteRecords took
