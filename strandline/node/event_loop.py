"""The event loop of `node`, `copy` and other commands that use stores and log directories."""

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
"""Limit of a Python thread's turn, in seconds: at the default of 5 ms a busy thread was measured to
delay the completion of an fdatasync by 5 ms.
"""

OBJECTS_A_COLLECTION = 5_000
"""Number of new objects between two garbage collections; Python's default is 700."""


def node_runner() -> asyncio.Runner:
    """A runner for main coroutines; also sets the switch interval of the process."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return asyncio.Runner(loop_factory=new_loop)


def run(main: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run `main` in the event loop of a node, and return its result."""
    with node_runner() as runner:
        return runner.run(main)


class _Loop(uvloop.Loop):
    """An event loop that closes without waiting for threads of `asyncio.to_thread`, which may hang
    on a dead disk.

    Parts that need their threads' work done wait for it in their own `close`, which ran before.
    """

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing here; `close` ends the idle threads."""


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop for the process of a node or a worker."""
    loop = _Loop()
    loop.set_exception_handler(_unhandled)
    return loop


def _unhandled(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    if told_by_its_request(context):
        _log.info("a store closed its connection while a request was being sent")
    else:
        loop.default_exception_handler(dict(context))


def told_by_its_request(context: Mapping[str, Any]) -> bool:
    """True for the error of aiohttp's task that writes a request (3.14) when the store closed the
    connection.

    The request itself fails as well, and is repeated or reported. While it waits for `100
    Continue`, no code reads the task's error, and asyncio would log a traceback. The types are
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
    """Exclude the node's objects from garbage collection. Call this once the node is built.

    Measured: a full collection that includes them blocks the event loop for 15 ms and more, and
    Python's default threshold of 700 new objects costs a loaded quorum 2 to 4 % of its CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_A_COLLECTION)
