"""Calls that were given up while they hung in the file system change nothing more when they go on.

Their callers no longer wait, and the objects may have a new owner by then: a copy that was cleaned
up, a delete that was paused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kafka_formats.errors import RetryLater

_Answer = TypeVar("_Answer")


class _Call(threading.local):
    """The call of this thread; its event is set once the call was given up."""

    given_up: threading.Event | None = None


_call = _Call()


def run_until(given_up: threading.Event, work: Callable[[], _Answer]) -> _Answer:
    """The result of `work`, which runs in this thread until the event is set."""
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
    """Raise RetryLater once the call was given up; for use right before it changes anything."""
    if _call.given_up is not None and _call.given_up.is_set():
        raise RetryLater("the call was given up, and changes nothing more")
