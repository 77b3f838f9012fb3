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
        text = text_of(error)
        found = _OURS.findall(text)
        if found:
            kind, message = found[-1]
            raise _ours(kind, message) from error
        raise internal_error(text) from error


def error_of_work(error: PySparkException | Py4JJavaError) -> StrandlineError:
    """Our own error if a task ended with it, as one of a different program does before it begins;
    InternalError for any other, also one that was raised while ours was handled.
    """
    text = text_of(error)
    found = _OURS.findall(head := _head(text))
    return _ours(*found[-1]) if found and head.endswith(found[-1][1]) else internal_error(text)


def text_of(error: PySparkException | Py4JJavaError) -> str:
    """Spark's text about a failed task."""
    return str(error.java_exception if isinstance(error, Py4JJavaError) else error)


def internal_error(text: str) -> InternalError:
    """The task's own error: the end of its Python trace, without the two Java traces after it."""
    return InternalError(f"a task failed on Spark: {_head(text)[-SHOWN_CHARACTERS_MAX:]}")


def _head(text: str) -> str:
    return text.partition("\n\tat ")[0].strip()


def _ours(kind: str, message: str) -> StrandlineError:
    if kind in _KINDS:
        return _KINDS[kind](message)
    damage = _DAMAGE.fullmatch(message)
    source, position, detail = ("", 0, message) if damage is None else damage.groups()
    return CorruptData(detail, source=source, position=int(position))
