"""Starts the work of a request where the request is read, not in the next turn of the event loop.

A task makes its first step one turn later. A commit waits for several requests one after the other,
a Produce and the followers' Fetches, and would wait for such a turn in each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def begun_at_once(work: Coroutine[Any, Any, Result]) -> Result | Awaitable[Result]:
    """Make the first step of `work`, which must not use its task in that step. Returns the result,
    or an awaitable of the rest, which also raises errors of the first step.
    """
    try:
        waiting = work.send(None)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    except Exception as error:  # noqa: BLE001 - raised to the caller that awaits it
        failed: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        failed.exception()  # counts as retrieved: a lost connection never awaits it
        return failed
    return _Rest(work, waiting)


class _Rest(Generic[Result]):
    """The steps after the first one, which waits for `waiting`."""

    def __init__(self, work: Coroutine[Any, Any, Result], waiting: object) -> None:
        self._work = work
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Result]:
        work, waiting = self._work, self._waiting
        while True:
            thrown: BaseException | None = None
            try:
                yield waiting
            except BaseException as error:  # noqa: BLE001 - for the work, mostly a cancellation
                thrown = error
            try:
                waiting = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as ended:
                result: Result = ended.value
                return result
