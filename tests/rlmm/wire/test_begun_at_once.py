"""Work that begins at once ends as it would in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from rlmm.wire.begun_at_once import begun_at_once


class Work:
    """Waits twice, and tells what happened to it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[bytes] = loop.create_future()
        self.second: asyncio.Future[bytes] = loop.create_future()
        self.told: list[str] = []

    async def run(self) -> bytes:
        self.told.append("begun")
        try:
            return await self.first + await self.second
        finally:
            self.told.append("ended")


def awaited(begun: bytes | Awaitable[bytes]) -> asyncio.Task[bytes]:
    assert not isinstance(begun, bytes)

    async def await_it() -> bytes:
        return await begun

    return asyncio.create_task(await_it())


async def test_the_first_step_is_made_before_anybody_else_runs() -> None:
    work = Work()
    task = awaited(begun_at_once(work.run()))
    assert work.told == ["begun"]
    work.first.set_result(b"a")
    await asyncio.sleep(0)
    work.second.set_result(b"b")
    assert await task == b"ab"
    assert work.told == ["begun", "ended"]


async def test_what_does_not_wait_is_its_result() -> None:
    async def run() -> bytes:
        return b"done"

    assert begun_at_once(run()) == b"done"


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_of_any_step_is_for_who_awaits_it(waits: bool) -> None:
    async def run() -> bytes:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no")

    task = awaited(begun_at_once(run()))
    with pytest.raises(ValueError, match="no"):
        await task


@pytest.mark.parametrize("turns", [1, 4])
async def test_a_cancellation_reaches_what_is_waited_for_and_the_work(turns: int) -> None:
    work = Work()
    task = awaited(begun_at_once(work.run()))
    if turns > 1:
        work.first.set_result(b"a")
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (work.second if turns > 1 else work.first).cancelled()
    assert work.told == ["begun", "ended"]


async def test_work_that_withstands_a_cancellation_goes_on() -> None:
    work = Work()

    async def stubborn() -> bytes:
        try:
            return await work.first
        except asyncio.CancelledError:
            return await work.second

    task = awaited(begun_at_once(stubborn()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    work.second.set_result(b"b")
    assert await task == b"b"
