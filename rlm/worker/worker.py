"""A worker process: one end of the socket pair, jobs side by side on one event loop.

It does what the supervisor asks and decides nothing. The supervisor handles Ctrl-C and SIGTERM;
when the socket closes, jobs are cancelled and the process ends, whatever still hangs.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from kafka_formats.errors import InternalError, RetryLater, StrandlineError
from rlm.control.log_levels import set_levels
from rlm.control.process_end import end_process
from rlm.control.surroundings import Ambient
from rlm.data_plane.copy_job import CopyJob, CopyProgress
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import (
    BatchesRequest,
    LogRequest,
    RecordsEnd,
    SegmentPiece,
    SendRules,
)
from rlm.data_plane.repair_jobs import CheckJob, GatherJob, OnRead
from rlm.data_plane.segment_survey import SurveyJob
from rlm.data_plane.verified_chunks import Parts
from rlm.quota.copy_turns import CopyTurns
from rlm.quota.flow_limits import Flow, Paces
from rlm.quota.paced_store import PacedStore
from rlm.quota.worker_pace import GrantBook, WorkerPace
from rlm.worker.client_send import ClientSend
from rlm.worker.descriptor_channel import take_descriptor
from rlm.worker.messages import (
    DATA_BYTES_MAX,
    NO_JOB,
    STREAM_LIMIT_BYTES,
    Answer,
    Ask,
    Began,
    CancelJob,
    Cancelled,
    Credit,
    End,
    Failed,
    FromWorker,
    Granted,
    Heartbeat,
    PieceAt,
    Progress,
    ReadOn,
    Ready,
    Request,
    Result,
    SendHere,
    SendToClient,
    SentSoFar,
    SetLogLevels,
    SetPaces,
    StartJob,
    StoreCalls,
    TakeBytes,
    Welcome,
    data_frame,
    frame,
    in_frames,
    receive,
)
from rlm.worker.store_calls import StoreCallLog
from rsm_backends.key_rounds import look_again
from rsm_backends.measured import MeasuredStore
from rsm_backends.open_store import open_all
from rsm_backends.store import ObjectStore
from rsm_backends.store_threads import hanging_calls
from rsm_backends.streams import closing_stream

ORPHAN_GRACE_S = 5.0
"""Seconds for jobs to abort their uploads once the supervisor is gone."""

_SEND_BUFFER_BYTES_MAX = 4 * 1024 * 1024
_log = logging.getLogger(__name__)


def run(
    socket_fd: int,
    ambient: Ambient,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Serve the supervisor at the other end of `socket_fd`, then end the process. Does not wait for
    threads, which may hang in a read of a dead disk.
    """
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, lambda *_: look_again())
    status = 1
    try:
        asyncio.Runner(loop_factory=loop_factory).run(_connect_and_serve(socket_fd, ambient))
        status = 0
    except Exception:  # noqa: BLE001 - the process's last words
        _log.exception("the worker process ends")
    finally:
        end_process(status)


async def _connect_and_serve(socket_fd: int, ambient: Ambient) -> None:
    reader, writer = await asyncio.open_unix_connection(
        sock=socket.socket(fileno=socket_fd), limit=STREAM_LIMIT_BYTES
    )
    try:
        await serve(reader, writer, ambient)
    finally:
        writer.close()


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ambient: Ambient
) -> None:
    """Do the arriving jobs until the other end is closed."""
    welcome = await receive(reader)
    if not isinstance(welcome, Welcome):
        return
    async with AsyncExitStack() as stores_open:
        calls = StoreCallLog(lambda: tell_store_calls(writer, calls))
        try:
            opened = await open_all(
                welcome.stores,
                sleep=ambient.sleep,
                monotonic=ambient.monotonic,
                random_fraction=ambient.random_fraction,
                now_ms=ambient.now_ms,
            )
        except StrandlineError as error:
            writer.write(frame(Failed(NO_JOB, error)))
            await writer.drain()
            return
        grants = GrantBook(functools.partial(ask_for_bytes, writer))
        pace = WorkerPace(Paces(), grants.ask)
        turns = CopyTurns(ambient.monotonic)
        stores: dict[str, ObjectStore] = {}
        for name, store in opened.items():
            stores_open.push_async_callback(store.close)
            measured = MeasuredStore(store, calls.observer(name), monotonic=ambient.monotonic)
            stores[name] = PacedStore(measured, welcome.stores[name].prefix, pace, turns)
        plane = DataPlane(
            stores,
            now_ms=ambient.now_ms,
            cache_bytes_max=welcome.cache_bytes_max,
            chunk_cache_bytes_max=welcome.chunk_cache_bytes_max,
            read_ahead_bytes_max=welcome.read_ahead_bytes_max,
            aiven_keys={name: dict(each.aiven_keys) for name, each in welcome.stores.items()},
        )
        stores_open.push_async_callback(plane.close)
        descriptors = None
        if welcome.descriptors_fd is not None:
            descriptors = stores_open.enter_context(socket.socket(fileno=welcome.descriptors_fd))
        worker = _Worker(
            _Channel(reader, writer, descriptors),
            plane,
            welcome,
            ambient,
            calls,
            _Brakes(pace, grants, turns),
        )
        await worker.serve()


def ask_for_bytes(
    writer: asyncio.StreamWriter, number: int, flow: Flow, topic: str | None, size: int
) -> None:
    if not writer.is_closing():
        writer.write(frame(TakeBytes(number, flow, topic, size)))


def tell_store_calls(writer: asyncio.StreamWriter, calls: StoreCallLog) -> None:
    """Send the collected calls, if any."""
    taken = calls.take()
    if taken and not writer.is_closing():
        writer.write(frame(StoreCalls(taken)))


class _Channel(NamedTuple):
    """The connection to the supervisor. `descriptors` None: no client's connection is ever lent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    descriptors: socket.socket | None


class _Brakes(NamedTuple):
    """The brakes on the stores, set by the supervisor."""

    pace: WorkerPace
    grants: GrantBook
    turns: CopyTurns


class _Worker:
    """The jobs under way and the socket they share."""

    def __init__(
        self,
        channel: _Channel,
        plane: DataPlane,
        welcome: Welcome,
        ambient: Ambient,
        store_calls: StoreCallLog,
        brakes: _Brakes,
    ) -> None:
        self._reader, self._writer, self._descriptors = channel
        self._store_calls = store_calls
        self._pace, self._grants, self._turns = brakes
        self._plane = plane
        self._welcome = welcome
        self._ambient = ambient
        self._jobs: dict[int, _Job] = {}
        self._tasks: dict[int, asyncio.Task[Result | None]] = {}

    async def serve(self) -> None:
        heartbeat = asyncio.create_task(self._beat())
        try:
            self._send(Ready())
            while (message := await receive(self._reader)) is not None:
                self._handle(message)
        finally:
            heartbeat.cancel()
            left = tuple(self._tasks.values())
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=ORPHAN_GRACE_S)

    def _handle(self, message: object) -> None:
        match message:
            case StartJob(job_id, request, waits):
                job = _Job(job_id, self, self._plane, self._welcome.window_frames)
                self._jobs[job_id] = job
                perform = job.perform_waiting if waits else job.perform
                task = asyncio.create_task(perform(request, self._ambient.monotonic))
                self._tasks[job_id] = task
                task.add_done_callback(functools.partial(self._ended, job_id))
            case CancelJob(job_id):
                if job_id in self._tasks:
                    self._tasks[job_id].cancel()
            case Credit(job_id):
                if job_id in self._jobs:
                    self._jobs[job_id].credit.release()
            case SendToClient(job_id, rules):
                self._lend(job_id, rules)
            case SendHere(job_id):
                if job_id in self._jobs:
                    self._jobs[job_id].send_here()
            case Granted(number):
                self._grants.answered(number)
            case SetPaces(paces):
                self._pace.change(paces)
            case SetLogLevels(levels):
                set_levels(levels)
            case Answer(job_id, piece):
                if job_id in self._jobs:
                    self._jobs[job_id].answered(piece)
            case _:
                raise InternalError(f"a worker does not understand {type(message).__name__}")

    def _lend(self, job_id: int, rules: SendRules) -> None:
        """Take the connection even if its job has ended meanwhile: the next job's follows."""
        if self._descriptors is None:
            raise InternalError("a worker without a descriptor channel was lent a connection")
        job = self._jobs.get(job_id)
        try:
            client = socket.socket(fileno=take_descriptor(self._descriptors, job_id))
        except RetryLater as error:
            _log.error("%s", error)
            if job is not None:
                job.lend_nothing(error)
            return
        if job is None or not job.lend(client, rules):
            client.close()

    def _ended(self, job_id: int, task: asyncio.Task[Result | None]) -> None:
        """Note a task's end, also of one cancelled before its first step."""
        ended: FromWorker
        if task.cancelled():
            ended = Cancelled(job_id)
        else:
            error = task.exception()
            if error is None:
                ended = End(job_id, task.result())
            elif isinstance(error, StrandlineError):
                ended = Failed(job_id, error)
            else:
                _log.error("a job of the worker failed", exc_info=error)
                ended = Failed(job_id, InternalError(f"{type(error).__name__}: {error}"))
        self._jobs.pop(job_id).close()
        del self._tasks[job_id]
        tell_store_calls(self._writer, self._store_calls)
        try:
            self._send(ended)
        except Exception as error:  # noqa: BLE001 - told
            # The supervisor gets its end, or kills this process for its silence.
            _log.exception("the end of a worker's job cannot be sent to the supervisor")
            why = f"the end of the worker's job cannot be sent: {error}"
            self._send(Failed(job_id, InternalError(why)))

    async def _beat(self) -> None:
        while True:
            await self._ambient.sleep(self._welcome.heartbeat_s)
            # A full pipe is enough for the supervisor: nothing is queued here.
            if self._writer.transport.get_write_buffer_size() < _SEND_BUFFER_BYTES_MAX:
                plane = self._plane
                self._send(Heartbeat(plane.chunk_counts, plane.chunk_bytes_held, hanging_calls()))
                tell_store_calls(self._writer, self._store_calls)

    def _send(self, message: FromWorker) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    def tell(self, message: FromWorker) -> None:
        """Send a small message."""
        self._send(message)

    async def stream(self, job_id: int, parts: Parts) -> None:
        """Send large data: waits while the pipe is full."""
        if not self._writer.is_closing():
            self._writer.writelines(data_frame(job_id, parts))
        with self._turns.read(sum(map(len, parts))):
            await self._writer.drain()


class _Job:
    """One request at work. Also the resolver of a read of records: it asks the supervisor."""

    def __init__(self, job_id: int, worker: _Worker, plane: DataPlane, window_frames: int) -> None:
        self.job_id = job_id
        self.credit = asyncio.Semaphore(window_frames)
        self._worker = worker
        self._plane = plane
        self._waiting: asyncio.Future[SegmentPiece | None] | None = None
        self._lent: asyncio.Future[tuple[socket.socket, SendRules] | None] = (
            asyncio.get_running_loop().create_future()
        )

    async def perform(self, request: Request, monotonic: Callable[[], float]) -> Result | None:
        if isinstance(request, CopyJob):
            return await self._plane.copy(request, self._progress(request, monotonic))
        if isinstance(request, CheckJob):
            return await self._plane.check(request, self._read_on())
        if isinstance(request, GatherJob):
            return await self._plane.gather(request, self._read_on())
        if isinstance(request, SurveyJob):
            return await self._plane.survey(request, self._read_on())
        if isinstance(request, BatchesRequest):
            raise InternalError("batches are held until they are sent, and this job does not wait")
        ends: list[RecordsEnd] = []
        await self._send_all(self._plane.parts(request, self, ends.append))
        return ends[0] if ends else None

    async def perform_waiting(
        self, request: Request, monotonic: Callable[[], float]
    ) -> Result | None:
        """A read that sends its bytes to the client itself, once the first are verified."""
        if isinstance(request, BatchesRequest):
            found, data = await self._plane.batches(request, self)
            self._worker.tell(Began(self.job_id, found))
            return await self._deliver((data,), _one_after_another(()), monotonic)
        if not isinstance(request, LogRequest):
            raise InternalError(f"a {type(request).__name__} does not wait for a client")
        stream = self._plane.parts(request, self, _no_end)
        async with closing_stream(stream) as read:
            first = await anext(read, None)
            self._worker.tell(Began(self.job_id))
            return await self._deliver(first, read, monotonic)

    async def _deliver(
        self, first: Parts | None, rest: AsyncIterator[Parts], monotonic: Callable[[], float]
    ) -> Result | None:
        """Send all where the supervisor says."""
        lent = await self._lent
        if lent is None:
            await self._send_all(_one_after_another(() if first is None else (first,), rest))
            return None

        def tell(sent_bytes: int) -> None:
            self._worker.tell(SentSoFar(self.job_id, sent_bytes))

        client, rules = lent
        return await ClientSend(client, rules, monotonic, tell).send_all(first, rest)

    def lend(self, client: socket.socket, rules: SendRules) -> bool:
        """Take the connection that a waiting read waits for; True if it did."""
        if self._lent.done():
            return False
        client.setblocking(False)
        self._lent.set_result((client, rules))
        return True

    def send_here(self) -> None:
        """Have a waiting read send to the supervisor."""
        if not self._lent.done():
            self._lent.set_result(None)

    def lend_nothing(self, error: RetryLater) -> None:
        """End a waiting read whose connection does not come."""
        if not self._lent.done():
            self._lent.set_exception(error)

    def close(self) -> None:
        """Close the client's connection before the job's end is told."""
        if not self._lent.done():
            self._lent.cancel()
        elif not self._lent.cancelled() and self._lent.exception() is None:
            lent = self._lent.result()
            if lent is not None:
                lent[0].close()

    async def _send_all(self, stream: AsyncIterator[Parts]) -> None:
        async with closing_stream(stream) as read:
            async for parts in read:
                for some in in_frames(parts):
                    await self.credit.acquire()
                    await self._worker.stream(self.job_id, some)

    def _progress(
        self, job: CopyJob, monotonic: Callable[[], float]
    ) -> Callable[[CopyProgress], None]:
        interval_s = job.limits.progress_interval_ms / 1000
        told_at = -interval_s

        def tell(progress: CopyProgress) -> None:
            nonlocal told_at
            now = monotonic()
            if now - told_at >= interval_s or progress.bytes_done == progress.bytes_total:
                told_at = now
                self._worker.tell(Progress(self.job_id, progress))

        return tell

    def _read_on(self) -> OnRead:
        """Tell of bytes read as often as a stream would send them."""
        untold = 0

        def tell(size: int) -> None:
            nonlocal untold
            untold += size
            if untold >= DATA_BYTES_MAX:
                untold = 0
                self._worker.tell(ReadOn(self.job_id))

        return tell

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        self._waiting = asyncio.get_running_loop().create_future()
        self._worker.tell(Ask(self.job_id, PieceAt(offset)))
        return await self._waiting

    def answered(self, piece: SegmentPiece | None) -> None:
        """Take the supervisor's answer to the open question."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(piece)


def _no_end(_: RecordsEnd) -> None:
    """No end to report: reads of a log have none."""


async def _one_after_another(
    pieces: Sequence[Parts], rest: AsyncIterator[Parts] | None = None
) -> AsyncIterator[Parts]:
    for parts in pieces:
        yield parts
    if rest is not None:
        async for parts in rest:
            yield parts
