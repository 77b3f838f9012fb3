"""Runs a job's work in a task. Workers import this module, which needs nothing of the driver's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark import TaskContext

from kafka_formats.errors import RetryLater, StrandlineError
from pipeline.spark.marked_pickle import Marked
from pipeline.spark.worker_garbage import begin_task

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a task that raised an error of ours."""

    error: StrandlineError


@dataclass(frozen=True)
class Guarded(Marked, Generic[Item, Result]):
    """`work` for Spark, returning our errors as `Failed`. Picklable if `work` is. Spark tries a
    failing task `attempts` times: RetryLater is raised until the last one, which returns it.
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
