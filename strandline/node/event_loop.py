"""Event loop of `node`, `copy` and other commands that use stores and log directories."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import uvloop

_Answer = TypeVar("_Answer")
_log = logging.getLogger("strandline")

SWITCH_INTERVAL_S = 0.0005
"""The longest turn of a Python thread: at the default of 5 ms a busy thread was measured to make an
fdatasync completion 5 ms late.
"""

OBJECTS_A_COLLECTION = 5_000
"""New objects between two garbage collections; Python's default is 700."""


def node_runner() -> asyncio.Runner:
    """A runner of main coroutines; also sets up the process for them."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return asyncio.Runner(loop_factory=new_loop)


def run(main: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run `main` as a node runs its own, and return its result."""
    with node_runner() as runner:
        return runner.run(main)


class _Loop(uvloop.Loop):
    """Event loop that closes without waiting for `asyncio.to_thread`: a thread may hang on a dead
    disk.

    Work that has to be done before the end was waited for by then.
    """

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Leave the threads to `close`, which ends the idle ones."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop of a node's or a worker's process."""
    loop = _Loop()
    loop.set_exception_handler(_unhandled)
    return loop


def _unhandled(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    if told_by_its_request(context):
        _log.info("a store closed its connection while a request was sent to it")
    else:
        loop.default_exception_handler(dict(context))


def told_by_its_request(context: Mapping[str, Any]) -> bool:
    """True for aiohttp's task that writes a request (3.14), failing because the store is gone.

    The request itself fails as well, and is repeated or reported. Where its head waits for `100
    Continue`, nobody reads the task's own error and asyncio would log a traceback. The types are
    compared by name, since aiohttp is slow to import.
    """
    error = context.get("exception")
    task = context.get("future")
    return (
        type(error).__name__ == "ClientConnectionResetError"
        and isinstance(task, asyncio.Task)
        and getattr(task.get_coro(), "__qualname__", "") == "ClientRequest.write_bytes"
    )


def leave_out_of_collections() -> None:
    """Exclude a finished node from garbage collection; call once it is built.

    Measured: a full collection over it blocks the event loop for 15 ms and more, and Python's
    default threshold of 700 new objects costs a loaded quorum 2 to 4 % of its CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_A_COLLECTION)
