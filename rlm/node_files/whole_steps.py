"""Steps that change a file of the node: one at a time, and each to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kafka_formats.errors import RetryLater

logger = logging.getLogger(__name__)

WAITING_MAX = 100
"""Limit of the steps that wait for a disk that hangs; each may keep its caller's data."""

Result = TypeVar("Result")


class WholeSteps:
    """Runs steps in the order of the calls. A step goes on, and later ones wait for it, when its
    caller is cancelled: the thread that writes for it cannot be ended, and would otherwise put an
    older content in place of one that was reported as stored.
    """

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Run the step; its result, or its error. RetryLater: too many wait already."""
        if len(self._tasks) >= WAITING_MAX:
            raise RetryLater(
                f"{len(self._tasks)} changes of a file in the node's data directory wait for the "
                "disk already: check whether it hangs"
            )
        task = asyncio.ensure_future(self._in_turn(step))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_report)
            raise

    async def _in_turn(self, step: Callable[[], Awaitable[Result]]) -> Result:
        async with self._one_at_a_time:
            return await step()


def _report(task: asyncio.Future[Any]) -> None:
    """Log the failure of a step whose caller gave up; nobody else gets it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a change of a file that went on without its caller failed: %s", error)
