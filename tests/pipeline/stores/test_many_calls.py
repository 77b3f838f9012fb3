"""Many requests at once: in order, bounded, and ended by the first error."""

from __future__ import annotations

import asyncio

import pytest

from kafka_formats.errors import RetryLater
from pipeline.stores.many_calls import CALLS_AT_ONCE, many_calls


def test_answers_are_in_order_and_no_more_are_asked_at_once_than_the_bound() -> None:
    waiting: list[asyncio.Event] = []
    most = 0

    async def ask(number: int) -> int:
        nonlocal most
        mine = asyncio.Event()
        waiting.append(mine)
        most = max(most, len(waiting))
        if len(waiting) == CALLS_AT_ONCE:
            waiting[-1].set()
        elif number >= 3 * CALLS_AT_ONCE:
            mine.set()  # the last ones: nobody comes behind them
        await mine.wait()
        waiting.remove(mine)
        for each in waiting:
            each.set()
        return number * number

    numbers = range(3 * CALLS_AT_ONCE + 7)
    assert asyncio.run(many_calls(ask, numbers)) == [number * number for number in numbers]
    assert most == CALLS_AT_ONCE


def test_the_first_error_is_told_as_it_is_and_ends_the_others() -> None:
    ended: list[int] = []

    async def ask(number: int) -> None:
        if number == 3:
            raise RetryLater("the store is slow today")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(RetryLater, match="slow today"):
        asyncio.run(many_calls(ask, range(5)))
    assert set(ended) == {0, 1, 2, 4}
