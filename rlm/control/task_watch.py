"""A watchdog on the node's loops: reports one that failed or gets nowhere.

All waits of a loop have deadlines of their own; this is for unforeseen ones. It ends nothing: a
hanging loop may hold something that no other may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import Ambient

AWAKE_S_MAX = 900.0
"""The time without sleep, not even for a moment, after which a loop hangs."""


def no_problems() -> Iterable[NodeProblem]:
    """No problems: for a loop whose trouble is reported elsewhere."""
    return ()


class Loop(NamedTuple):
    """A task that runs as long as the node, and the problems it reports. Every round sleeps."""

    name: str
    run: Callable[[], Coroutine[None, None, None]]
    problems: Callable[[], Iterable[NodeProblem]] = no_problems


@dataclass(slots=True)
class _Watched:
    """The time when the loop last woke up; None while it sleeps."""

    awake_since_s: float | None


class TaskWatch:
    """Watches tasks that sleep by its `Ambient` in every round."""

    def __init__(self, monotonic: Callable[[], float], *, awake_s_max: float = AWAKE_S_MAX) -> None:
        self._monotonic = monotonic
        self._awake_s_max = awake_s_max
        self._watched: dict[asyncio.Task[None], _Watched] = {}

    def around(self, ambient: Ambient) -> Ambient:
        """Return this ambient with a sleep that proves its caller alive."""

        async def sleep(seconds: float) -> None:
            task = asyncio.current_task()
            watched = self._watched.get(task) if task is not None else None
            if watched is None:
                await ambient.sleep(seconds)
                return
            watched.awake_since_s = None
            try:
                await ambient.sleep(seconds)
            finally:
                watched.awake_since_s = self._monotonic()

        return replace(ambient, sleep=sleep)

    def watch(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Watch tasks until they are cancelled. Their names say what they do."""
        for task in tasks:
            self._watched[task] = _Watched(self._monotonic())

    def problems(self) -> Iterator[NodeProblem]:
        """Loops that failed or hang, by name."""
        now_s = self._monotonic()
        for task, watched in self._watched.items():
            text = self._trouble(task, watched, now_s)
            if text is not None:
                yield NodeProblem(ProblemArea.TASKS, task.get_name(), text)

    def _trouble(self, task: asyncio.Task[None], watched: _Watched, now_s: float) -> str | None:
        if task.done():
            error = None if task.cancelled() else task.exception()
            if error is None:
                return None  # it was stopped, or had nothing to do on this node
            return (
                f"the task `{task.get_name()}` ended with {type(error).__name__}: {error}: restart "
                "the node, and report this"
            )
        since_s = watched.awake_since_s
        if since_s is None or now_s - since_s < self._awake_s_max:
            return None
        return (
            f"the task `{task.get_name()}` has made no progress for {now_s - since_s:.0f} s: check "
            "whether a disk or a store hangs; restart the node if it stays so"
        )
