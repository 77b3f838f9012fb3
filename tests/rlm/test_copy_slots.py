"""Slots for copies: never more than the bound, fair, and none is lost to a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from rlm.copy_slots import CopySlots, Waiting, next_in_line


def test_the_largest_backlog_goes_first_among_those_that_waited_alike() -> None:
    assert next_in_line([Waiting(10, 1.0), Waiting(500, 1.0), Waiting(20, 1.0)]) == 1


def test_waiting_makes_up_for_a_small_backlog() -> None:
    assert next_in_line([Waiting(999, 0.0), Waiting(99, 20.0)]) == 1


def test_ties_go_to_the_first() -> None:
    assert next_in_line([Waiting(5, 1.0), Waiting(5, 1.0)]) == 0


async def until_idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_than_the_bound_run_at_once_and_the_neediest_goes_next() -> None:
    slots = CopySlots(1, lambda: 0.0)
    order: list[int] = []
    gate = asyncio.Event()

    async def copy(backlog: int) -> None:
        async with slots.slot(backlog):
            order.append(backlog)
            await gate.wait()

    tasks = []
    for backlog in (1, 2, 3):
        tasks.append(asyncio.create_task(copy(backlog)))
        await until_idle()
    assert order == [1]
    gate.set()
    await asyncio.gather(*tasks)
    assert order == [1, 3, 2]


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_cancelled_waiter_loses_no_slot(handed_over: bool) -> None:
    slots = CopySlots(1, lambda: 0.0)
    release = asyncio.Event()

    async def hold() -> None:
        async with slots.slot(1):
            await release.wait()

    holder = asyncio.create_task(hold())
    await until_idle()
    waiter = asyncio.create_task(hold())
    await until_idle()
    release.set()
    if handed_over:
        await asyncio.sleep(0)  # the slot is the waiter's now, which has not run yet
    waiter.cancel()
    await asyncio.wait({holder, waiter})
    assert holder.exception() is None
    assert waiter.cancelled()
    async with asyncio.timeout(5), slots.slot(1):
        pass
