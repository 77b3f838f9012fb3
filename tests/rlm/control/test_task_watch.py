"""The watchdog on the node's loops: it tells of what failed or hangs, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from rlm.control.node_problem import ProblemArea
from rlm.control.surroundings import Ambient
from rlm.control.task_watch import AWAKE_S_MAX, TaskWatch
from tests.rlm.virtual_time import run_virtually, virtual_ambient


def told(loop_of: Callable[[Ambient], Coroutine[None, None, None]], after_s: float) -> list[str]:
    """What is told of a loop after some time."""

    async def main() -> list[str]:
        ambient = virtual_ambient()
        watch = TaskWatch(ambient.monotonic)
        task = asyncio.create_task(loop_of(watch.around(ambient)), name="turn the wheel")
        watch.watch([task])
        await asyncio.sleep(after_s)
        found = list(watch.problems())
        assert {(each.area, each.name) for each in found} <= {(ProblemArea.TASKS, task.get_name())}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not found:
            assert list(watch.problems()) == [], "a cancelled task is no trouble"
        return [each.text for each in found]

    return run_virtually(main)


async def turns(ambient: Ambient) -> None:
    while True:
        await asyncio.sleep(AWAKE_S_MAX / 2)  # its work
        await ambient.sleep(10 * AWAKE_S_MAX)


async def hangs(ambient: Ambient) -> None:
    await ambient.sleep(5)
    await asyncio.Event().wait()


async def fails(_: Ambient) -> None:
    raise ZeroDivisionError("nobody thought of it")


async def ends(ambient: Ambient) -> None:
    await ambient.sleep(5)


def test_a_loop_that_comes_round_is_no_trouble_however_long_it_sleeps() -> None:
    for after_s in (1.0, 9 * AWAKE_S_MAX, 100 * AWAKE_S_MAX):
        assert told(turns, after_s) == []


def test_a_loop_that_gets_nowhere_is_told_once_it_is_sure() -> None:
    assert told(hangs, AWAKE_S_MAX) == []
    (text,) = told(hangs, AWAKE_S_MAX + 6)
    assert "`turn the wheel` has made no progress for 901 s" in text


def test_a_loop_that_failed_is_told_with_its_error_and_one_that_had_nothing_to_do_is_not() -> None:
    (text,) = told(fails, 1)
    assert "ended with ZeroDivisionError: nobody thought of it" in text
    assert told(ends, 6) == []
