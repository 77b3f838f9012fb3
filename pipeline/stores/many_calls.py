"""Sends many small requests of a task to its stores at once, instead of one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

CALLS_AT_ONCE = 32

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


async def many_calls(
    ask: Callable[[_Item], Awaitable[_Answer]], items: Iterable[_Item]
) -> list[_Answer]:
    """The answers in the order of the items. The first error cancels the other requests."""
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def asked(item: _Item) -> _Answer:
        async with slots:
            return await ask(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asked(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
