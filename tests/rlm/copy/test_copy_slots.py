"""Slots for copies: never more than the bound, fair, and none is lost to a cancellation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.copy.copy_slots import (
    PATIENCE_S,
    Backlog,
    Choose,
    CopySlots,
    Waiting,
    next_in_line,
)
from tests.rlm.virtual_time import run_virtually


def line(*waiting: tuple[int, float, float]) -> list[Waiting]:
    """Bytes, age of the oldest and time in the queue of each."""
    return [Waiting(Backlog(size, age_s), waited_s) for size, age_s, waited_s in waiting]


def test_the_largest_backlog_goes_first_among_those_that_waited_alike() -> None:
    assert next_in_line(line((10, 0, 1), (500, 0, 1), (20, 0, 1))) == 1


def test_age_makes_up_for_a_small_backlog() -> None:
    assert next_in_line(line((999, 0, 0), (99, 20, 0))) == 1
    assert next_in_line(line((999, 0, 0), (99, 0, 20))) == 1


def test_ties_go_to_the_first() -> None:
    assert next_in_line(line((5, 1, 1), (5, 1, 1))) == 0


def test_past_their_patience_the_first_to_come_goes_first() -> None:
    few = (1, 0, PATIENCE_S)
    assert next_in_line(line((2**50, 1e9, 0), few)) == 1
    assert next_in_line(line((2**50, 1e9, PATIENCE_S - 1), few)) == 1
    assert next_in_line(line(few, (2**50, 1e9, PATIENCE_S + 1))) == 1


async def until_idle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_no_more_than_the_bound_run_at_once_and_the_neediest_goes_next() -> None:
    slots = CopySlots(1, lambda: 0.0)
    order: list[int] = []
    gate = asyncio.Event()

    async def copy(backlog: int) -> None:
        async with slots.slot(Backlog(backlog, 0)):
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
        async with slots.slot(Backlog(1, 0)):
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
    async with asyncio.timeout(5), slots.slot(Backlog(1, 0)):
        pass


async def test_a_disk_has_its_own_bound_and_holds_up_no_other() -> None:
    slots = CopySlots(3, lambda: 0.0, per_disk_max=2)
    gate = asyncio.Event()
    busy: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def copy(disk: str) -> None:
        async with slots.slot(Backlog(1, 0), disk):
            busy[disk] += 1
            most[disk] = max(most[disk], busy[disk])
            await gate.wait()
            busy[disk] -= 1

    tasks = [asyncio.create_task(copy(disk)) for disk in "aaaaab"]
    await until_idle()
    assert busy == {"a": 2, "b": 1}
    gate.set()
    await asyncio.gather(*tasks)
    assert most == {"a": 2, "b": 1}


@dataclass(frozen=True, slots=True)
class Load:
    """A partition that always has more: bytes, seconds a copy takes, its disk."""

    size_bytes: int
    copy_s: float
    disk: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One wait of a partition in the queue; `went_s` is infinite for one that still waits."""

    disk: int
    came_s: float
    went_s: float


def schedule(loads: Sequence[Load], slots_max: int, per_disk: int, choose: Choose) -> list[Turn]:
    """What an hour of copying looks like, on a virtual clock."""

    async def run() -> list[Turn]:
        loop = asyncio.get_running_loop()
        slots = CopySlots(slots_max, loop.time, per_disk_max=per_disk, choose=choose)
        turns: list[Turn] = []

        async def partition(load: Load) -> None:
            while True:
                came_s, went_s = loop.time(), float("inf")
                try:
                    async with slots.slot(Backlog(load.size_bytes, 0.0), load.disk):
                        went_s = loop.time()
                        turns.append(Turn(load.disk, came_s, went_s))
                        await asyncio.sleep(load.copy_s)
                except asyncio.CancelledError:
                    if went_s == float("inf"):
                        turns.append(Turn(load.disk, came_s, went_s))
                    raise

        tasks = [asyncio.create_task(partition(load)) for load in loads]
        await asyncio.sleep(3_600)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return turns

    return run_virtually(run)


def overtaken_past_patience(turns: Sequence[Turn]) -> list[tuple[Turn, Turn]]:
    """Invariant nobody_is_overtaken_past_patience: pairs of who waited and who went before it. How
    long one waited is a difference, as for who chooses: a sum is rounded elsewhere.
    """
    return [
        (waited, went)
        for waited in turns
        for went in turns
        if went.disk == waited.disk
        and went.came_s > waited.came_s
        and went.went_s - waited.came_s >= PATIENCE_S
        and went.went_s < waited.went_s
    ]


LOADS = st.lists(
    st.builds(Load, st.integers(1, 2**45), st.floats(5, 100), st.integers(0, 1)),
    min_size=2,
    max_size=10,
)


@given(loads=LOADS, slots_max=st.integers(1, 4), per_disk=st.integers(1, 3))
def test_nobody_is_overtaken_past_their_patience(
    loads: list[Load], slots_max: int, per_disk: int
) -> None:
    assert overtaken_past_patience(schedule(loads, slots_max, per_disk, next_in_line)) == []


def by_score_alone(waiting: Sequence[Waiting]) -> int:
    scores = [(each.backlog.size_bytes + 1) * (each.waited_s + 1) for each in waiting]
    return scores.index(max(scores))


def the_last_to_come(waiting: Sequence[Waiting]) -> int:
    return len(waiting) - 1


@pytest.mark.parametrize("planted", [by_score_alone, the_last_to_come])
def test_the_invariant_finds_a_choice_that_lets_somebody_starve(planted: Choose) -> None:
    loads = [Load(2**40, 30, 0), Load(2**40, 30, 0), Load(2**40, 30, 0), Load(1_000, 30, 0)]
    turns = schedule(loads, 1, 1, planted)
    assert overtaken_past_patience(turns)
    assert any(turn.went_s == float("inf") for turn in turns)
    assert not overtaken_past_patience(schedule(loads, 1, 1, next_in_line))
