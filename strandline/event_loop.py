"""The event loop of a process that runs a node: one set-up for `node` and `copy`."""

from __future__ import annotations

import asyncio
import gc
import sys

import uvloop

from strandline.time_slice import set_time_slice

SWITCH_INTERVAL_S = 0.0005
"""Measured: at Python's default of 5 ms a busy thread makes an fdatasync completion 5 ms late."""


SLICE_S = 0.0003
"""About what one turn of the loop takes: it begins sooner where many programs want the cores
(docs/BENCHMARKS.md has the figures, which differ from run to run).
"""


def node_runner() -> asyncio.Runner:
    """Runs a node's main coroutine; sets the process up for it."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    set_time_slice(SLICE_S)
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def leave_out_of_collections() -> None:
    """Once a node is built: all of it stays for good. Measured: going through it at each full
    garbage collection keeps the event loop for 15 ms and more.
    """
    gc.collect()
    gc.freeze()
