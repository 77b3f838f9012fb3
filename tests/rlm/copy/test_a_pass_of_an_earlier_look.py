"""A pass over the hold directories that outlasts its look: what left the log since is no unit yet,
so nothing is planned as if it were gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.copy.hold import Hold
from rlm.copy.hold_pass import Passed
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from tests.rlm.copy.test_active_hold import ALL, links, quiet_log, retention_takes_all, tiered
from tests.rlm.copy.test_active_hold_and_elections import let_go
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S, holding, lost
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize("ends_after_s", [25.0, 100.0])
@pytest.mark.parametrize("leads_before", [True, False])
def test_no_log_start_and_no_loss_is_recorded_above_what_it_will_hold(
    tmp_path: Path, ends_after_s: float, *, leads_before: bool
) -> None:
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): Leads(0, 35) if leads_before else NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == ["0"]
            assert node.hold is not None
            loop = asyncio.get_running_loop()
            node.hold._running = hangs = loop.create_future()
            loop.call_later(ends_after_s, hangs.set_result, Passed())
            retention_takes_all(log)
            broker.local_start = LocalLogStart(35, 0)
            broker.words["orders", 0] = Leads(0, 35)
            await asyncio.sleep(ends_after_s - 1.0)
            state = node.metadata.partition_state(log.partition)
            assert state is None or (state.log_start_offset, state.lost_ranges) == (0, ())
            await asyncio.sleep(2 * AFTER_ANY_BACK_OFF_S)
            assert (tiered(node, log), lost(node.events), let_go(node)) == (
                ALL,
                [],
                [(0, 34, "copied", False)],
            )

    run_virtually(main)


def test_where_every_pass_outlasts_its_look_the_next_one_goes_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a log that begins where it did then, nothing left since."""
    in_thread = asyncio.to_thread

    async def slowly(call: Callable[..., object], *arguments: Any, **named: Any) -> object:
        if getattr(call, "__func__", None) is Hold._pass:
            await asyncio.sleep(90.0)
        return await in_thread(call, *arguments, **named)

    monkeypatch.setattr(asyncio, "to_thread", slowly)
    log = quiet_log(tmp_path, 0, 10, 20)
    broker = FakeBroker({("orders", 0): Leads(0, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(log.partition) == [(0, 9), (10, 19), (20, 29)]
            assert node.hold is not None
            (problem,) = node.hold.problems()
            assert "could not be brought up to date within 60 s" in problem.text

    run_virtually(main)
