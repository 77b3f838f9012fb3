"""A process: whether it runs; with all its children stopped and woken, or killed, as a machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def runs(pid: int) -> bool:
    """Whether the process has not ended yet; one that nobody has waited for has."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP to this process alone, then SIGCONT: it takes connections and answers none."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stop_tree(pid: int) -> None:
    """SIGSTOP to the process and its children: nothing of it runs until `wake_tree`."""
    os.kill(pid, signal.SIGSTOP)  # first, so that it makes no more children
    for child in descendants(pid):
        os.kill(child, signal.SIGSTOP)


def wake_tree(pid: int) -> None:
    """SIGCONT to the same."""
    for child in descendants(pid):
        os.kill(child, signal.SIGCONT)
    os.kill(pid, signal.SIGCONT)


def kill_tree(pid: int) -> None:
    """SIGKILL to the same: a machine that is gone. What waits for `pid` is the caller's."""
    stop_tree(pid)
    for each in (*descendants(pid), pid):
        os.kill(each, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Process ids of its children, and of theirs."""
    direct = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):  # a JVM's are of other threads
        try:
            direct += [int(each) for each in thread.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [found for child in direct for found in (child, *descendants(child))]
