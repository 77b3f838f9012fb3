"""A job's work as it runs in a task. Workers import this, and nothing that only a driver needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark import TaskContext

from kafka_formats.errors import RetryLater, StrandlineError
from pipeline.worker_garbage import begin_task

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of ours that came out of a task."""

    error: StrandlineError


@dataclass(frozen=True)
class Guarded(Generic[Item, Result]):
    """Picklable as long as `work` is. `attempts` is how often Spark tries a task that fails: the
    last one gives its error back as it is.
    """

    work: Callable[[Item], Result]
    attempts: int

    def __call__(self, item: Item) -> Result | Failed:
        begin_task()
        try:
            return self.work(item)
        except RetryLater as error:
            context = TaskContext.get()
            if context is not None and context.attemptNumber() + 1 < self.attempts:
                raise
            return Failed(error)
        except StrandlineError as error:
            return Failed(error)
