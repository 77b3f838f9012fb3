"""The supervisor's side of the worker processes: calls go in, bytes and results come out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from rlm.copy_job import CopyJob, CopyResult, OnProgress
from rlm.read_request import (
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentResolver,
)
from rsm_backends.store_config import StoreConfig


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Bounds of the pool; see docs/SETTINGS.md for those an operator sets."""

    start_deadline_s: float = 20.0
    silence_deadline_s: float = 60.0
    cancel_deadline_s: float = 30.0
    stream_stall_s: float = 120.0
    jobs_max: int = 128
    window_frames: int = 4
    restart_backoff_base_s: float = 0.2
    restart_backoff_max_s: float = 10.0
    cache_bytes_max: int = 64 * 2**20


class WorkerPool:
    """A fixed number of worker processes, restarted when they die or hang.

    Every call raises RetryLater when its worker died or hung, or none is up in time; cancelling the
    awaiting task, or closing the iterator, cancels the work.
    """

    def __init__(
        self,
        command: Sequence[str],
        stores: Mapping[str, StoreConfig],
        *,
        size: int = 1,
        limits: WorkerLimits | None = None,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`command` starts a worker; the number of its socket is appended as the last argument."""
        raise NotImplementedError

    async def start(self) -> None:
        """Start the workers and wait until each is ready; RetryLater after `start_deadline_s`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Cancel all work and end the workers. Idempotent."""
        raise NotImplementedError

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        """Verify and upload one segment (see `rlm/segment_copy.py` for the errors)."""
        raise NotImplementedError

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        """Verified bytes of a segment's `.log`."""
        raise NotImplementedError

    def read_index(self, request: IndexRequest) -> AsyncIterator[bytes]:
        """Verified bytes of one index; NotFound at the first step if the segment has none."""
        raise NotImplementedError

    def read_records(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Whole batches, or whole JSON lines; `on_end` is called before the iterator ends."""
        raise NotImplementedError
