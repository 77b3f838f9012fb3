"""Calls that were given up while they hung in the file system change nothing more when they wake.

Nobody waits for them then, and what they were to change may be somebody else's by now: a copy that
was cleaned up, a delete that was paused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kafka_formats.errors import RetryLater

_Answer = TypeVar("_Answer")


class _Call(threading.local):
    """The call of this thread: set once it was given up."""

    given_up: threading.Event | None = None


_call = _Call()


def run_until(given_up: threading.Event, work: Callable[[], _Answer]) -> _Answer:
    """The result of `work`, which this thread carries on until the event is set."""
    _call.given_up = given_up
    try:
        return work()
    finally:
        _call.given_up = None


def while_wanted(keys: Iterable[str]) -> Iterator[str]:
    """The keys, one by one; RetryLater once the call was given up."""
    for key in keys:
        check_wanted()
        yield key


def sync_if_wanted(fd: int) -> None:
    """Make a file's bytes durable; RetryLater if the call was given up. Passes OSError."""
    os.fsync(fd)
    check_wanted()


def check_wanted() -> None:
    """Raise RetryLater once the call was given up: for the moment before it changes anything."""
    if _call.given_up is not None and _call.given_up.is_set():
        raise RetryLater("the call was given up, and changes nothing more")
