"""Runs one function over many items on Spark, with progress, bounded results and our own errors.

Items are sent in waves, two at a time, so that results reach the driver while later waves still
run: a job saves its results (a report, a commit) as it goes, and a killed one is resumed from them.
Spark repeats a task with a temporary failure, on a different executor if its own is gone; an error
that no repetition mends stops the job at once and keeps its kind.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Generic

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.jobs.frame_errors import error_of_work
from pipeline.jobs.guarded import Failed, Guarded, Item, Result

WAVE_TASKS_PER_SLOT = 4
WAVES_UNDER_WAY = 2
ASKED_EVERY_S = 0.2
TASK_ATTEMPTS = 4
"""Spark's default of `spark.task.maxFailures`."""

_LOCAL_MASTER = re.compile(r"local(\[[^,\]]+(,\s*(?P<attempts>\d+)\s*)?\])?")


def run_tasks(
    spark_context: SparkContext,
    items: Sequence[Item],
    work: Callable[[Item], Result],
    *,
    what: str,
    console: Console,
    tasks_per_slot: int = WAVE_TASKS_PER_SLOT,
) -> Iterator[Result]:
    """Call `work` (picklable, importable on the executors) for each item in a Spark task of its
    own, and yield the results in the items' order.

    Pack small items before: a task costs tens of milliseconds. The driver holds the results of a
    wave at a time, so they should describe data, never be the data. Abandoning the iterator cancels
    running tasks. Raises the first error of ours; InternalError for any other.
    """
    size = wave_tasks(spark_context, tasks_per_slot)
    waves = deque(items[at : at + size] for at in range(0, len(items), size))
    running: _Waves[Item, Result] = _Waves(spark_context, what)
    guarded = Guarded(work, attempts_of_a_task(spark_context))
    with _progress(what, len(items), console) as advance, running:
        while waves or running.under_way:
            while waves and len(running.under_way) < WAVES_UNDER_WAY:
                running.start(waves.popleft(), guarded)
            for result in running.next_finished(advance):
                if isinstance(result, Failed):
                    raise result.error
                yield result


def wave_tasks(spark_context: SparkContext, tasks_per_slot: int) -> int:
    """The number of tasks in a wave, whose results come to the driver together."""
    return max(1, spark_context.defaultParallelism * tasks_per_slot)


def attempts_of_a_task(spark_context: SparkContext) -> int:
    """Attempts of a task before its job fails. With a local master one, unless the master gives a
    number, as in `local[2,4]` (Spark's SparkContext.createTaskScheduler).
    """
    local = _LOCAL_MASTER.fullmatch(spark_context.master or "")
    if local is not None:
        return int(local["attempts"] or 1)
    return int(spark_context.getConf().get("spark.task.maxFailures", "") or TASK_ATTEMPTS)


class _Waves(Generic[Item, Result]):
    """Running Spark jobs, each in a thread of its own, all in one job group."""

    def __init__(self, spark_context: SparkContext, what: str) -> None:
        self._spark_context = spark_context
        self._what = what
        self._group = f"strandline-{what}-{id(self)}"
        self._threads = ThreadPoolExecutor(WAVES_UNDER_WAY, thread_name_prefix=self._group)
        self._done_before = 0
        self.under_way: deque[tuple[int, Future[list[Result | Failed]]]] = deque()

    def __enter__(self) -> _Waves[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        if self.under_way:
            self._spark_context.cancelJobGroup(self._group)
        self._threads.shutdown(wait=True, cancel_futures=True)

    def start(self, wave: Sequence[Item], work: Guarded[Item, Result]) -> None:
        self.under_way.append((len(wave), self._threads.submit(self._run, wave, work)))

    def _run(self, wave: Sequence[Item], work: Guarded[Item, Result]) -> list[Result | Failed]:
        # A job group belongs to a thread; py4j gives each Python thread a JVM thread of its own.
        self._spark_context.setJobGroup(self._group, self._what, interruptOnCancel=True)
        return self._spark_context.parallelize(wave, len(wave)).map(work).collect()

    def next_finished(self, advance: Callable[[int], None]) -> list[Result | Failed]:
        """The results of the oldest wave; waits until it has finished."""
        tasks, oldest = self.under_way[0]
        while not wait([oldest], timeout=ASKED_EVERY_S).done:
            advance(self._done_before + self._running_done())
        self.under_way.popleft()
        self._done_before += tasks
        advance(self._done_before + self._running_done())
        try:
            return oldest.result()
        except (PySparkException, Py4JJavaError) as error:
            raise error_of_work(error) from error

    def _running_done(self) -> int:
        """Number of finished tasks in the running waves."""
        tracker = self._spark_context.statusTracker()
        stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)


@contextmanager
def _progress(what: str, total: int, console: Console) -> Generator[Callable[[int], None]]:
    """A bar that only grows: Spark forgets finished stages just before their results arrive."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=total)
        most = 0

        def advance(done: int) -> None:
            nonlocal most
            most = max(most, min(done, total))
            progress.update(bar, completed=most)

        yield advance
