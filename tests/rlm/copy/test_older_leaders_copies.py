"""Links to active files whose offsets the tier has of an older leader, whom an unclean election cut
off: these are no copy of what the file has.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from tests.rlm.copy.test_active_hold import links, quiet_log
from tests.rlm.copy.test_active_hold_and_elections import let_go
from tests.rlm.copy.test_marks_behind_a_cut import is_written_down
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    NoQuorum,
    holding,
    lost,
    units,
)
from tests.rlm.one_node import new_world
from tests.rlm.planner_facts import epochs
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("end", [25, 33])
def test_what_an_older_leader_copied_is_no_copy_of_an_active_segment(
    tmp_path: Path, end: int, *, leads: bool
) -> None:
    """The tier has epoch 0 up to 34. An unclean election cut it off at 10, the claim that tells so
    waits for the quorum, and retention takes the active file, below that end or above it.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    broker = FakeBroker({("orders", 0): Leads(0, 35)})
    quorum = NoQuorum(lasts=False)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, quorum, broker=broker) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(log.partition) == [(0, 9), (10, 19), (20, 29)]
            quorum.lasts = True
            broker.words["orders", 0] = Leads(2, end) if leads else NotLeading()
            for base in (20, 30):
                log.delete_segment(base)
            log.write_as(10, end, ((0, 0), (2, 10)))
            log.set_epochs((0, 0), (2, 10))
            await is_written_down(log, end, times=4)
            assert links(tmp_path) == ["10"]
            log.write(end, end=end, epoch=2)
            for base in (0, 10):
                log.delete_segment(base)
            log.set_epochs((2, end))
            broker.local_start = LocalLogStart(end, 2)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["10"]
            broker.words["orders", 0] = Leads(2, end)
            quorum.lasts = False
            await asyncio.sleep(2 * AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(log.partition)
            assert state is not None
            assert (state.lineage, state.next_offset) == (epochs((0, 0), (2, 10)), end)
            assert (10, end - 1) in node.finished(log.partition)
            assert lost(node.events) == []
            assert let_go(node)[-1] == (10, end - 1, "copied", False)

    run_virtually(main)
