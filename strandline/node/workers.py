"""The worker processes of a node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rlm.control.log_levels import LogLevels
from rlm.quota.flow_control import FlowControl
from rlm.worker.handle import WorkerAmbient, WorkerLimits
from rlm.worker.pool import WorkerPool
from rlm.worker.store_calls import OnStoreCall
from rsm_backends.store_config import StoreConfig
from strandline.node import ambient
from strandline.node.program_mark import program_mark
from strandline.settings.log_lines import LogFormat
from strandline.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of the node that its workers use or report to."""

    node_id: int
    flow: FlowControl
    log_levels: LogLevels
    on_store_call: OnStoreCall


def worker_command(log_format: LogFormat, node_id: int) -> tuple[str, ...]:
    """The command of a worker, to which the number of its socket is appended. Secrets are sent over
    the socket.
    """
    module = "strandline.node.worker_process"
    return (sys.executable, "-m", module, log_format, str(node_id), program_mark())


def start_workers(
    settings: Settings,
    configs: Mapping[str, StoreConfig],
    shared: Shared,
    building: AsyncExitStack,
) -> asyncio.Task[WorkerPool]:
    """Begin to start the workers; the returned task ends once they are ready. `building` closes
    them.

    A worker takes as long to start as the rest of the node, so both start at the same time.
    """
    pool = WorkerPool(
        worker_command(settings.log.format, shared.node_id),
        configs,
        WorkerAmbient(ambient.monotonic, ambient.sleep),
        limits=WorkerLimits(
            count=settings.worker.count,
            silence_deadline_s=settings.worker.hang_deadline_s,
            chunk_cache_bytes_max=settings.worker.chunk_cache_bytes,
            read_ahead_bytes_max=settings.worker.read_ahead_bytes,
        ),
        on_store_call=shared.on_store_call,
        flow=shared.flow,
        log_levels=shared.log_levels,
    )
    building.push_async_callback(pool.close)
    starting = asyncio.create_task(_started(pool))
    building.push_async_callback(_given_up, starting)
    return starting


async def _started(pool: WorkerPool) -> WorkerPool:
    await pool.start()
    return pool


async def _given_up(starting: asyncio.Task[WorkerPool]) -> None:
    """Cancel a start that is no longer awaited; its error is dropped."""
    starting.cancel()
    await asyncio.wait((starting,))
    if not starting.cancelled():
        starting.exception()
