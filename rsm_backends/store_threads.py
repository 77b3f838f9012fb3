"""The threads in which a file system's calls block, and the watch over calls that hang there.

A call that is given up continues in its thread: nothing can end a system call on a mount that
hangs. A warning is logged when it has hung for long, and when it ends. While all threads hang, new
calls are refused, so that neither threads nor waiting calls grow in number.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from kafka_formats.errors import RetryLater

HANGS_AFTER_S = 5.0
"""Time after which a call that was given up counts as hanging."""
REFUSED_RETRY_MS = 10_000

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class StoreThreads:
    """At most `threads_max` threads. `name` is the store's name, for messages."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="filesystem-store")
        self._hanging: set[Future[Any]] = set()
        self._lock = threading.Lock()

    @property
    def hanging(self) -> int:
        """Threads whose call was given up long ago and has not ended."""
        return len(self._hanging)

    async def run(self, what: str, work: Callable[[], _Answer]) -> _Answer:
        """Runs `work` in a thread and returns its result. RetryLater at once while all threads
        hang; a call that is cancelled before it began never begins.
        """
        if self.hanging >= self._threads_max:
            raise RetryLater(
                f"all {self._threads_max} threads of {self._name} hang in calls that were given "
                "up: look whether its disk or mount answers (df, dmesg)",
                retry_after_ms=REFUSED_RETRY_MS,
            )
        future = self._threads.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.running():
                loop = asyncio.get_running_loop()
                loop.call_later(HANGS_AFTER_S, self._look, future, what)
            raise

    def _look(self, future: Future[Any], what: str) -> None:
        with self._lock:
            if future.done():
                return
            self._hanging.add(future)
        _log.warning(
            "%s: a call was given up and hangs in the file system (%s); %d of %d threads hang: "
            "look whether its disk or mount answers",
            self._name, what, self.hanging, self._threads_max,
        )  # fmt: skip
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[Any]) -> None:
        with self._lock:
            self._hanging.discard(future)
        _log.warning("%s: a call that hung has ended; %d hang", self._name, self.hanging)

    async def close(self) -> None:
        """Wait for calls under way, unless some hang."""
        await asyncio.to_thread(self._threads.shutdown, wait=not self._hanging)
