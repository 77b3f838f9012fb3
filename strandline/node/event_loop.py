"""The event loop of a process over stores and log directories: one set-up for `node`, `copy` and
the commands that look at what a node has.
"""

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
"""Measured: at Python's default of 5 ms a busy thread makes an fdatasync completion 5 ms late."""

OBJECTS_A_COLLECTION = 5_000
"""New objects behind which Python looks for garbage; its default is 700."""


def node_runner() -> asyncio.Runner:
    """Runs main coroutines; sets the process up for them."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return asyncio.Runner(loop_factory=new_loop)


def run(main: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run `main` as a node runs its own, and return its result."""
    with node_runner() as runner:
        return runner.run(main)


class _Loop(uvloop.Loop):
    """Closes without waiting for the threads of `asyncio.to_thread`: one may hang on a dead disk.

    Whose work has to be done before the end has waited for it by then.
    """

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Leave them to `close`, which ends those that are idle."""


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
    """Whether it is the task that writes a request for aiohttp (3.14), when the store is gone.

    The request fails by itself then, and is repeated or told. But where the head waits for the
    store's `100 Continue`, nobody asks for that task's own error, and asyncio would log a trace.
    Known by name: aiohttp takes long to import, and only a node with an S3 store needs it.
    """
    error = context.get("exception")
    task = context.get("future")
    return (
        type(error).__name__ == "ClientConnectionResetError"
        and isinstance(task, asyncio.Task)
        and getattr(task.get_coro(), "__qualname__", "") == "ClientRequest.write_bytes"
    )


def leave_out_of_collections() -> None:
    """Once a node is built: all of it stays for good. Measured: going through it at each full
    garbage collection keeps the event loop for 15 ms and more.

    What a busy node has made lately is mostly requests under way. By Python's default they are gone
    through after each 700 new objects: 2 to 4 % of the CPU of a loaded quorum.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_A_COLLECTION)
