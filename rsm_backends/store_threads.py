"""The threads in which a file system's calls block, and the watch over calls that hang there.

A call that is given up continues in its thread, since nothing can end a system call on a mount that
hangs; when that ends, it changes nothing more (`hung_calls.py`). A warning is logged when a call
has hung for long, and when it ends. While all threads hang, new calls are refused, so that neither
threads nor waiting calls increase in number. Python waits for these threads when a process exits:
one that has to end in any case uses `rlm.control.process_end`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakSet

from kafka_formats.errors import RetryLater
from rsm_backends.hung_calls import run_until

HANGS_AFTER_S = 5.0
"""The time after which a call that was given up counts as hanging."""
CLOSE_DEADLINE_S = HANGS_AFTER_S
"""The deadline of `close` for calls under way, whose callers no longer wait."""
REFUSED_RETRY_MS = 10_000

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


_pools: WeakSet[StoreThreads] = WeakSet()


def hanging_calls() -> Counter[str]:
    """The number of this process's calls that hang now, by the name of their `StoreThreads`."""
    found: Counter[str] = Counter()
    for pool in _pools:
        found[pool.name] += pool.hanging
    return +found


class StoreThreads:
    """At most `threads_max` threads. `name` identifies the store, for messages."""

    def __init__(self, name: str, threads_max: int) -> None:
        self.name = name
        self._threads_max = threads_max
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="filesystem-store")
        self._under_way: set[Future[Any]] = set()
        self._hanging: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False
        _pools.add(self)

    @property
    def hanging(self) -> int:
        """The number of threads whose call was given up long ago and has not ended."""
        return len(self._hanging)

    async def run(self, what: str, work: Callable[[], _Answer]) -> _Answer:
        """Run `work` in a thread and return its result. RetryLater at once while all threads hang,
        and for calls that have not begun at `close` or come after it; a call that is cancelled
        before it began never begins.
        """
        if self._closed:
            raise self._is_closed()
        if self.hanging >= self._threads_max:
            raise RetryLater(
                f"all {self._threads_max} threads of {self.name} hang in calls that were given "
                "up: check that its disk or mount answers (df, dmesg)",
                retry_after_ms=REFUSED_RETRY_MS,
            )
        given_up = threading.Event()
        future = self._threads.submit(run_until, given_up, work)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            given_up.set()
            task = asyncio.current_task()
            if future.cancelled() and task is not None and not task.cancelling():
                raise self._is_closed() from None  # the caller itself was not cancelled
            if future.running():
                loop = asyncio.get_running_loop()
                loop.call_later(HANGS_AFTER_S, self._look, future, what)
            raise

    def _is_closed(self) -> RetryLater:
        return RetryLater(
            f"{self.name} is closed, and the call did not begin: its process stops; ask again when "
            "it is back",
            retry_after_ms=REFUSED_RETRY_MS,
        )

    def _look(self, future: Future[Any], what: str) -> None:
        with self._lock:
            if future.done():
                return
            self._hanging.add(future)
        _log.warning(
            "%s: a call was given up and hangs in the file system (%s); %d of %d threads hang: "
            "check that its disk or mount answers",
            self.name, what, self.hanging, self._threads_max,
        )  # fmt: skip
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[Any]) -> None:
        with self._lock:
            self._hanging.discard(future)
        _log.warning("%s: a call that hung has ended; %d hang", self.name, self.hanging)

    async def close(self) -> bool:
        """Wait for the calls under way, `CLOSE_DEADLINE_S` at most, and not for those that hang.

        True if all have ended; the others go on in their threads, and calls that have not begun by
        then never begin.
        """
        self._closed = True
        self._threads.shutdown(wait=False)
        left = {each: asyncio.wrap_future(each) for each in self._under_way - self._hanging}
        if left:
            await asyncio.wait(left.values(), timeout=CLOSE_DEADLINE_S)
        for future, waiting in left.items():
            future.cancel()
            if not waiting.cancel() and not waiting.cancelled():
                waiting.exception()  # marked as retrieved: the caller got it
        hanging = sum(future.running() for future in tuple(self._under_way))
        if hanging:
            _log.warning(
                "%s: closed while %d %s in the file system: check that its disk or mount answers",
                self.name, hanging, "call hangs" if hanging == 1 else "calls hang",
            )  # fmt: skip
        else:
            self._threads.shutdown()  # at once: they are idle
        return not hanging
