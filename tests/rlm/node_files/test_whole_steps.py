"""Steps that change a file: in order, whole, and not without a bound."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from kafka_formats.errors import RetryLater
from rlm.node_files import whole_steps
from rlm.node_files.whole_steps import WholeSteps


async def test_steps_go_on_in_their_order_when_their_callers_are_gone() -> None:
    steps, go_on = WholeSteps(), asyncio.Event()
    done: list[int] = []

    async def step(number: int) -> int:
        await go_on.wait()
        done.append(number)
        return number

    callers = [asyncio.create_task(steps.run(partial(step, number))) for number in range(4)]
    await asyncio.sleep(0)
    for caller in callers[:3]:
        caller.cancel()
    await asyncio.gather(*callers[:3], return_exceptions=True)
    go_on.set()
    assert await callers[3] == 3
    assert done == [0, 1, 2, 3]


async def test_a_step_that_fails_ends_its_caller_and_no_other() -> None:
    steps = WholeSteps()

    async def fails() -> None:
        raise OSError("the disk is full")

    async def works() -> int:
        return 1

    with pytest.raises(OSError, match="full"):
        await steps.run(fails)
    assert await steps.run(works) == 1


async def test_only_so_many_wait_for_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_steps, "WAITING_MAX", 3)
    steps, go_on = WholeSteps(), asyncio.Event()
    callers = [asyncio.create_task(steps.run(go_on.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(RetryLater, match=r"3 changes .* wait for the disk already"):
        await steps.run(go_on.wait)
    go_on.set()
    await asyncio.gather(*callers)
    assert await steps.run(go_on.wait) is True
