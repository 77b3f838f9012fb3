"""A progress bar on the terminal for Spark's work on tables: the number of finished tasks.

Only Spark knows the stages of a table, and it reports them as they begin; so the bar's end moves
until the last stage runs. For work on items, `tasks.py` has a bar of these.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from pyspark import SparkStageInfo
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

ASKED_EVERY_S = 0.5
LAST_ANSWER_WAIT_S = 2.0
"""Time that the end of a step waits for the tracker's last answer."""


class StageTracker(Protocol):
    """The part of `pyspark.StatusTracker` that is used."""

    def getActiveStageIds(self) -> list[int]:  # noqa: N802  Spark's name
        """Ids of running stages."""

    def getStageInfo(self, stageId: int) -> SparkStageInfo | None:  # noqa: N802, N803  Spark's
        """A stage's state; None if Spark has forgotten it."""


class StagesSeen:
    """The stages since the first call; one that was active and is not any more has finished."""

    def __init__(self) -> None:
        self._tasks: dict[int, int] = {}

    def look(self, tracker: StageTracker) -> tuple[int, int]:
        """(finished tasks, all tasks so far)."""
        waiting = 0
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                self._tasks[number] = stage.numTasks
                waiting += stage.numTasks - stage.numCompletedTasks
        total = sum(self._tasks.values())
        return total - waiting, total


@contextmanager
def stage_bar(what: str, tracker: Callable[[], StageTracker], console: Console) -> Generator[None]:
    """Draws while the block runs, if the console is a terminal. A failing tracker ends the drawing,
    never the block. `tracker` is `SparkContext.statusTracker`.
    """
    if not console.is_terminal:
        yield
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
    )  # fmt: skip
    ended = Event()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None)

        def watch() -> None:
            seen = StagesSeen()
            try:
                asked = tracker()
                while not ended.wait(ASKED_EVERY_S):
                    done, total = seen.look(asked)
                    progress.update(bar, completed=done, total=total or None, refresh=True)
            except Exception:  # noqa: BLE001  a failing bar must not fail the job
                return

        watching = Thread(target=watch, name="strandline-stage-bar", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join(LAST_ANSWER_WAIT_S)
