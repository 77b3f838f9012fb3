"""The supervisor's pool of worker processes: takes calls, returns bytes and results."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from kafka_formats.errors import RetryLater, StrandlineError
from rlm.control.log_levels import LogArea, LogLevel, LogLevels
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.data_plane.chunk_cache import ChunkCounts
from rlm.data_plane.copy_job import CopyJob, CopyResult, OnProgress
from rlm.data_plane.read_request import (
    BatchesRequest,
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentResolver,
)
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, GatherJob, GatherResult
from rlm.data_plane.segment_survey import SurveyJob
from rlm.local_log.damage import Survey
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import Paces
from rlm.worker.call import Call
from rlm.worker.handle import (
    LeftBehind,
    WorkerAmbient,
    WorkerHandle,
    WorkerLimits,
    take_no_flow,
)
from rlm.worker.messages import (
    Data,
    End,
    PieceRequest,
    Progress,
    ReadReady,
    Request,
    StillReading,
    Welcome,
    call_error,
)
from rlm.worker.store_calls import OnStoreCall, ignore_store_call
from rlm.worker.waiting_read import WorkersBatches, WorkersWaitingRead
from rsm_backends.store_config import StoreConfig

__all__ = ["WorkerLimits", "WorkerPool"]

JOBS_MORE_MAX = 8
"""A worker with this many jobs more than the least busy one gets no further job."""

_HEARTBEATS_PER_DEADLINE = 10
_HEARTBEAT_S_MAX = 2.0
_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class WorkerPool:
    """A fixed number of worker processes, restarted when they die or hang.

    Every call raises RetryLater if its worker died or hung, or no worker is up in time; cancelling
    the task, or closing the iterator, cancels the work.
    """

    def __init__(
        self,
        command: Sequence[str],
        stores: Mapping[str, StoreConfig],
        ambient: WorkerAmbient,
        *,
        limits: WorkerLimits | None = None,
        on_store_call: OnStoreCall = ignore_store_call,
        flow: FlowControl | None = None,
        log_levels: LogLevels | None = None,
    ) -> None:
        """`command` starts a worker; the number of its socket is appended as the last argument.

        `on_store_call` is called, a little later, for every call of the workers to a store; it must
        not block or raise. `flow` limits the moved bytes; None: no limits. `log_levels` are those
        of the workers.
        """
        self._flow = flow
        if flow is not None:
            flow.tell(self._set_paces)
        self._workers: dict[int, WorkerHandle] = {}
        self._log_levels = log_levels or LogLevels()
        self._log_levels.tell(self._set_log_levels)
        self._command = tuple(command)
        self._limits = limits or WorkerLimits()
        self._size = self._limits.count
        self._ambient = ambient
        self._on_store_call = on_store_call
        self._welcome = Welcome(
            stores=dict(stores),
            cache_bytes_max=self._limits.cache_bytes_max,
            chunk_cache_bytes_max=self._limits.chunk_cache_bytes_max,
            read_ahead_bytes_max=self._limits.read_ahead_bytes_max,
            heartbeat_s=min(
                self._limits.silence_deadline_s / _HEARTBEATS_PER_DEADLINE, _HEARTBEAT_S_MAX
            ),
            window_frames=self._limits.window_frames,
        )
        self._keepers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._last_error: Exception | None = None
        self._ends_s: deque[float] = deque(maxlen=self._limits.crashes_told)
        self._last_ending = ""
        self._left_behind: list[LeftBehind] = []
        self._closed = False
        self._ended_chunks = ChunkCounts()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are up."""
        return tuple(worker.pid for worker in self._workers.values())

    def look_for_keys(self) -> None:
        """Have the workers read their stores' keys again."""
        for worker in self._workers.values():
            worker.look_for_keys()

    def problems(self) -> tuple[NodeProblem, ...]:
        """Workers that can't be started, that end repeatedly, or that do not end when killed."""
        if self._closed:
            return ()
        if self._last_error is None or len(self._workers) == self._size:
            return (*self._crash_loop(), *self._hanging())
        text = (
            f"only {len(self._workers)} of {self._size} worker processes are up, and no further "
            f"one can be started: {self._last_error}"
        )
        return (NodeProblem(ProblemArea.WORKERS, None, text), *self._hanging())

    def _hanging(self) -> tuple[NodeProblem, ...]:
        pids = ", ".join(str(worker.pid) for worker in self._still_there())
        if not pids:
            return ()
        text = (
            f"worker processes were killed and do not end ({pids}): check whether a disk hangs "
            "(`ps` shows them in state D); their work is tried again"
        )
        return (NodeProblem(ProblemArea.WORKERS, "killed", text),)

    def _still_there(self) -> Sequence[LeftBehind]:
        self._left_behind = [worker for worker in self._left_behind if worker.is_left_behind]
        return self._left_behind

    def _crash_loop(self) -> tuple[NodeProblem, ...]:
        oldest_s = self._ends_s[0] if len(self._ends_s) == self._limits.crashes_told else None
        window_s = self._limits.crash_window_s
        if oldest_s is None or self._ambient.monotonic() - oldest_s > window_s:
            return ()
        text = (
            f"worker processes ended {self._limits.crashes_told} times or more within "
            f"{window_s:g} s, and their work with them; the last one {self._last_ending}: look at "
            "the log for the cause (memory, a crash of a library)"
        )
        return (NodeProblem(ProblemArea.WORKERS, None, text),)

    def chunk_counts(self) -> ChunkCounts:
        """Chunks that readers found in the workers' memory, ended workers included."""
        return sum((worker.told.chunks for worker in self._workers.values()), self._ended_chunks)

    def chunk_bytes_held(self) -> int:
        """Bytes of chunks that the workers keep now."""
        return sum(worker.told.chunk_bytes_held for worker in self._workers.values())

    def hanging_calls(self) -> Counter[str]:
        """Calls of the workers that hang in a store's file system, by the store's folder."""
        found: Counter[str] = Counter()
        for worker in self._workers.values():
            found.update(worker.told.hanging)
        return found

    async def start(self) -> None:
        """Start the workers and wait until each is ready. Raises the first failure: NotFound or
        InvalidRequest for a store's settings.
        """
        try:
            for slot in range(self._size):
                self._workers[slot] = await self._start_worker()
        except BaseException:
            await self.close()
            raise
        self._keepers = [asyncio.create_task(self._keep(slot)) for slot in range(self._size)]

    async def close(self) -> None:
        """Cancel all work and end the workers. Idempotent."""
        self._closed = True
        self._announce()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        workers, self._workers = tuple(self._workers.values()), {}
        await asyncio.gather(*(worker.close() for worker in workers))

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        """Verify and upload one segment (`rlm/data_plane/segment_copy.py` has the errors).

        After it returned, raised or was cancelled, this attempt sends no more bytes. So a
        cancellation waits until the worker has stopped, or was killed after `cancel_deadline_s`.
        """
        call = await self._call(job)
        try:
            while True:
                message = await call.next()
                if isinstance(message, Progress):
                    if on_progress is not None:
                        on_progress(message.progress)
                elif isinstance(message, End) and isinstance(message.result, CopyResult):
                    return message.result
                else:
                    raise call_error(message)
        finally:
            call.cancel()
            await _until(call.finished)

    async def check(self, job: CheckJob) -> CheckResult:
        """Compare objects with the metadata, byte by byte."""
        return await self._result(job, CheckResult)

    async def gather(self, job: GatherJob) -> GatherResult:
        """Look for a whole copy of a segment, and put its files together."""
        return await self._result(job, GatherResult)

    async def survey(self, job: SurveyJob) -> Survey:
        """Find the good batches of a damaged segment."""
        return await self._result(job, Survey)

    async def _result(self, job: CheckJob | GatherJob | SurveyJob, kind: type[_Answer]) -> _Answer:
        """The result of a job. After this returned, raised or was cancelled, the worker does no
        more work on the job.
        """
        call = await self._call(job)
        try:
            while isinstance(message := await call.next(), StillReading):
                pass  # each one ends a wait of `next`, whose length the watch measures
            if isinstance(message, End) and isinstance(message.result, kind):
                return message.result
            raise call_error(message)
        finally:
            call.cancel()
            await _until(call.finished)

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        """Verified bytes of a segment's `.log`."""
        return self._stream(request)

    def read_index(self, request: IndexRequest) -> AsyncIterator[bytes]:
        """Verified bytes of one index; NotFound at the first step if the segment has none."""
        return self._stream(request)

    def read_records(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Whole batches, or whole JSON lines; a piece may end inside of one. `on_end` is called
        before the iterator ends.
        """
        return self._stream(request, resolver, on_end)

    @asynccontextmanager
    async def waiting_log(self, request: LogRequest) -> AsyncIterator[WorkersWaitingRead]:
        """A read of a `.log` whose first bytes are verified; leaving the block ends it."""
        call = await self._call(request, waits=True)
        try:
            message = await call.next()
            if not isinstance(message, ReadReady):
                raise call_error(message)
            yield WorkersWaitingRead(call)
        finally:
            call.cancel()

    @asynccontextmanager
    async def waiting_batches(
        self, request: BatchesRequest, resolver: SegmentResolver
    ) -> AsyncIterator[WorkersBatches]:
        """Batches that a worker holds until they are sent; leaving the block ends it."""
        call = await self._call(request, waits=True)
        try:
            while isinstance(message := await call.next(), PieceRequest):
                call.answer(await resolver.piece_at(message.question.offset))
            if not isinstance(message, ReadReady) or message.found is None:
                raise call_error(message)
            yield WorkersBatches(call, message.found)
        finally:
            call.cancel()

    async def _stream(
        self,
        request: Request,
        resolver: SegmentResolver | None = None,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        call = await self._call(request)
        try:
            while True:
                message = await call.next()
                if isinstance(message, Data):
                    yield message.data
                elif isinstance(message, PieceRequest) and resolver is not None:
                    call.answer(await resolver.piece_at(message.question.offset))
                elif isinstance(message, End):
                    if on_end is not None and isinstance(message.result, RecordsEnd):
                        on_end(message.result)
                    return
                else:
                    raise call_error(message)
        finally:
            call.cancel()

    async def _call(self, request: Request, *, waits: bool = False) -> Call:
        """Start a job; wait while no worker is up."""
        try:
            async with asyncio.timeout(self._limits.start_deadline_s):
                while not self._workers and not self._closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            why = "" if self._last_error is None else f": {self._last_error}"
            raise RetryLater(
                f"no worker process was up for {self._limits.start_deadline_s:g} s{why}"
            ) from self._last_error
        if self._closed:
            raise RetryLater("the worker processes are ending with the node")
        return self._worker_for(request).call(request, waits=waits)

    def _worker_for(self, request: Request) -> WorkerHandle:
        """The worker with the fewest jobs. Ranges of one log go to the same worker, which has read
        ahead, unless it has many more jobs.
        """
        workers = self._workers.values()
        fewest = min(workers, key=lambda worker: (worker.is_killed, worker.jobs_at_work))
        if isinstance(request, LogRequest | BatchesRequest):
            usual = self._workers.get(request.segment.segment_id.id[-1] % self._size)
            jobs_max = fewest.jobs_at_work + JOBS_MORE_MAX
            if usual and not usual.is_killed and usual.jobs_at_work <= jobs_max:
                return usual
        return fewest

    async def _start_worker(self) -> WorkerHandle:
        flow = self._flow
        worker = await WorkerHandle.start(
            self._command,
            self._welcome,
            self._limits,
            self._ambient,
            self._on_store_call,
            take_no_flow if flow is None else flow.take,
            lambda process: self._left_behind.append(process),
        )
        if flow is not None:
            worker.set_paces(flow.paces())
        worker.set_log_levels(self._log_levels.levels)
        _log.debug("worker process %s is up", worker.pid)
        return worker

    def _set_paces(self, paces: Paces) -> None:
        for worker in self._workers.values():
            worker.set_paces(paces)

    def _set_log_levels(self, levels: Mapping[LogArea, LogLevel]) -> None:
        for worker in self._workers.values():
            worker.set_log_levels(levels)

    async def _keep(self, slot: int) -> None:
        """Replace the worker of one slot whenever it dies."""
        limits, monotonic = self._limits, self._ambient.monotonic
        backoff_s = limits.restart_backoff_base_s
        while True:
            began_s = monotonic()
            await self._workers[slot].dead.wait()
            ended = self._workers.pop(slot)
            if ended.is_left_behind:
                self._left_behind.append(ended)
            self._ends_s.append(monotonic())
            self._last_ending = ended.ending
            _log.warning(
                "worker process %s ended (%s), a new one is started", ended.pid, ended.ending
            )
            if monotonic() - began_s >= limits.crash_window_s:
                backoff_s = limits.restart_backoff_base_s
            self._ended_chunks += ended.told.chunks
            await ended.close()
            self._workers[slot] = await self._restarted(backoff_s)
            backoff_s = min(backoff_s * 2, limits.restart_backoff_max_s)
            self._announce()

    async def _restarted(self, backoff_s: float) -> WorkerHandle:
        while True:
            await self._ambient.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, self._limits.restart_backoff_max_s)
            try:
                self._check_left_behind()
                return await self._start_worker()
            except Exception as error:  # noqa: BLE001 - reported, and tried again
                self._last_error = error
                expected = isinstance(error, StrandlineError)
                _log.error(
                    "a worker process cannot be started: %s",
                    error,
                    exc_info=None if expected else error,
                )

    def _check_left_behind(self) -> None:
        count = len(self._still_there())
        if count >= self._limits.left_behind_max:
            raise RetryLater(f"{count} killed worker processes have not ended")

    def _announce(self) -> None:
        self._changed.set()


async def _until(event: asyncio.Event) -> None:
    """Wait for the event even while being cancelled; then pass the cancellation on."""
    waiting = asyncio.ensure_future(event.wait())
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
