"""Turns the error of a data frame's task into our own again: Spark passes on only its text."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafka_formats.errors import (
    CorruptData,
    InternalError,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)

_OURS = re.compile(r"kafka_formats\.errors\.(RetryLater|Refused|NotFound|CorruptData): (.*)")
_DAMAGE = re.compile(r"(.*?) at byte (\d+): (.*)")
_KINDS: dict[str, type[StrandlineError]] = {
    "RetryLater": RetryLater, "Refused": Refused, "NotFound": NotFound,
}  # fmt: skip
SHOWN_CHARACTERS_MAX = 2_000


@contextmanager
def our_errors() -> Generator[None]:
    """A context in which RetryLater, Refused, NotFound and CorruptData keep their kind; everything
    else is an InternalError with the end of the task's trace.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        told = error.java_exception if isinstance(error, Py4JJavaError) else error
        text = str(told)
        found = _OURS.findall(text)
        if found:
            kind, message = found[-1]
            raise _ours(kind, message) from error
        head, *_ = text.partition("\n\tat ")
        raise InternalError(
            f"a task failed on Spark: {head.strip()[-SHOWN_CHARACTERS_MAX:]}"
        ) from error


def _ours(kind: str, message: str) -> StrandlineError:
    if kind in _KINDS:
        return _KINDS[kind](message)
    damage = _DAMAGE.fullmatch(message)
    source, position, detail = ("", 0, message) if damage is None else damage.groups()
    return CorruptData(detail, source=source, position=int(position))
