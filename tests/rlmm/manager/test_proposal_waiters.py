"""An outcome reaches its proposer whichever of the two comes first, and none is kept for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kafka_formats.errors import OutcomeUnknown
from rlmm.apply.outcome import ACCEPTED, NO_EFFECT
from rlmm.manager.proposal_waiters import Decision, ProposalWaiters

YES = Decision(ACCEPTED)
AGAIN = Decision(NO_EFFECT)


def new_waiters(
    *, outcomes_kept_max: int, on_proposal: Callable[[], None] = lambda: None
) -> ProposalWaiters:
    return ProposalWaiters(outcomes_kept_max=outcomes_kept_max, on_proposal=on_proposal)


async def test_each_proposal_is_told_as_it_begins() -> None:
    may_ask = []
    waiters = new_waiters(outcomes_kept_max=1, on_proposal=lambda: may_ask.append(waiters.may_ask))
    for count in (1, 2):
        with waiters.proposal():
            assert may_ask == [True] * count


async def test_the_outcome_may_come_first() -> None:
    waiters = new_waiters(outcomes_kept_max=10)
    with waiters.proposal():
        waiters.decided(5, YES)
        assert await waiters.wait(5) == YES


async def test_the_proposer_may_come_first() -> None:
    waiters = new_waiters(outcomes_kept_max=10)
    with waiters.proposal():
        waiting = [asyncio.create_task(waiters.wait(offset)) for offset in (6, 5)]
        await asyncio.sleep(0)
        waiters.decided(5, YES)
        waiters.decided(6, AGAIN)
        assert [await one for one in waiting] == [AGAIN, YES]


async def test_nothing_is_kept_while_nobody_proposes() -> None:
    waiters = new_waiters(outcomes_kept_max=10)
    waiters.decided(4, YES)
    with waiters.proposal():
        waiters.decided(5, YES)
    assert not waiters._kept


async def test_outcomes_kept_are_bounded_and_the_overtaken_are_unknown() -> None:
    waiters = new_waiters(outcomes_kept_max=3)
    with waiters.proposal():
        for offset in range(10):
            waiters.decided(offset, YES)
        with pytest.raises(OutcomeUnknown, match="passed over"):
            await waiters.wait(2)
        assert await waiters.wait(9) == YES


async def test_a_waiter_that_gives_up_is_forgotten() -> None:
    waiters = new_waiters(outcomes_kept_max=3)
    with waiters.proposal():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await waiters.wait(5)
        assert not waiters._waiting
        waiters.decided(5, YES)


async def test_the_end_answers_all_and_those_who_come_later() -> None:
    waiters = new_waiters(outcomes_kept_max=3)
    with waiters.proposal():
        waiters.decided(1, YES)
        waiting = asyncio.create_task(waiters.wait(5))
        await asyncio.sleep(0)
        waiters.end("over")
        with pytest.raises(OutcomeUnknown, match="over"):
            await waiting
        with pytest.raises(OutcomeUnknown, match="over"):
            await waiters.wait(6)
        assert await waiters.wait(1) == YES, "what is decided stays decided"
