"""A worker process: one end of the socket pair, and jobs side by side on one event loop.

It carries out the supervisor's requests and decides nothing. The supervisor handles Ctrl-C and
SIGTERM; when the socket closes, jobs are cancelled and the process ends, even if a thread hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

from kafka_formats.errors import InternalError, RetryLater, StrandlineError
from rlm.control.log_levels import set_levels
from rlm.control.process_end import end_process
from rlm.control.surroundings import Ambient
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import (
    SendRules,
)
from rlm.data_plane.verified_chunks import Parts
from rlm.quota.copy_turns import CopyTurns
from rlm.quota.flow_limits import Flow, Paces
from rlm.quota.paced_store import PacedStore
from rlm.quota.worker_pace import GrantBook, WorkerPace
from rlm.worker.descriptor_channel import take_descriptor
from rlm.worker.job import Job
from rlm.worker.messages import (
    NO_JOB,
    STREAM_LIMIT_BYTES,
    CancelJob,
    Cancelled,
    Credit,
    End,
    Failed,
    FromWorker,
    Granted,
    Heartbeat,
    PieceReply,
    Ready,
    Result,
    SendToClient,
    SendToSupervisor,
    SetLogLevels,
    SetPaces,
    StartJob,
    StoreCalls,
    TakeBytes,
    TakeNoBytes,
    Welcome,
    data_frame,
    frame,
    receive,
)
from rlm.worker.store_calls import StoreCallLog
from rsm_backends.key_rounds import look_again
from rsm_backends.measured_store import MeasuredStore
from rsm_backends.open_store import open_all
from rsm_backends.store import ObjectStore
from rsm_backends.store_threads import hanging_calls

REFUSAL_DEADLINE_S = 20.0
"""Limit of the wait of a worker that refuses to start for its node."""
ORPHAN_GRACE_S = 5.0
"""Seconds in which jobs may abort their uploads once the supervisor is gone."""

_SEND_BUFFER_BYTES_MAX = 4 * 1024 * 1024
_log = logging.getLogger(__name__)


def run(
    socket_fd: int,
    ambient: Ambient,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Serve the supervisor at the other end of `socket_fd`, then end the process, without waiting
    for threads, which may hang in a read of a dead disk.
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


def refuse(socket_fd: int, error: StrandlineError) -> None:
    """Tell the node why this worker does not start. Its Welcome, whose fields this program may not
    have, is not decoded.
    """
    with socket.socket(fileno=socket_fd) as node, contextlib.suppress(OSError):
        node.settimeout(REFUSAL_DEADLINE_S)
        node.recv(STREAM_LIMIT_BYTES)
        node.sendall(frame(Failed(NO_JOB, error)))


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
        grants = GrantBook(
            functools.partial(ask_for_bytes, writer), functools.partial(ask_no_more, writer)
        )
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


def ask_no_more(writer: asyncio.StreamWriter, number: int) -> None:
    if not writer.is_closing():
        writer.write(frame(TakeNoBytes(number)))


def tell_store_calls(writer: asyncio.StreamWriter, calls: StoreCallLog) -> None:
    """Send the collected calls, if any."""
    taken = calls.take()
    if taken and not writer.is_closing():
        writer.write(frame(StoreCalls(taken)))


class _Channel(NamedTuple):
    """The connection to the supervisor. `descriptors` None: clients' connections are never lent."""

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
        self._jobs: dict[int, Job] = {}
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
                job = Job(job_id, self, self._plane, self._welcome.window_frames)
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
            case SendToClient(job_id, rules, further):
                self._lend(job_id, rules, further)
            case SendToSupervisor(job_id):
                if job_id in self._jobs:
                    self._jobs[job_id].send_here()
            case Granted(number):
                self._grants.answered(number)
            case SetPaces(paces):
                self._pace.change(paces)
            case SetLogLevels(levels):
                set_levels(levels)
            case PieceReply(job_id, piece):
                if job_id in self._jobs:
                    self._jobs[job_id].answered(piece)
            case _:
                raise InternalError(f"a worker does not understand {type(message).__name__}")

    def _lend(self, job_id: int, rules: SendRules, further: FurtherRequests | None) -> None:
        """Take the connection even if its job has ended meanwhile: that of the next job is queued
        after it.
        """
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
        if job is None or not job.lend(client, rules, further):
            client.close()

    def _ended(self, job_id: int, task: asyncio.Task[Result | None]) -> None:
        """Report a task's end, also that of one cancelled before its first step."""
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
        except Exception as error:  # noqa: BLE001 - reported
            # If this fails too, the supervisor kills this process for its silence.
            _log.exception("the end of a worker's job cannot be sent to the supervisor")
            why = f"the end of the worker's job cannot be sent: {error}"
            self._send(Failed(job_id, InternalError(why)))

    async def _beat(self) -> None:
        while True:
            await self._ambient.sleep(self._welcome.heartbeat_s)
            # No heartbeat is queued behind a full pipe: those bytes are a sign of life themselves.
            if self._writer.transport.get_write_buffer_size() < _SEND_BUFFER_BYTES_MAX:
                plane = self._plane
                self._send(Heartbeat(plane.chunk_counts, plane.chunk_bytes_held, hanging_calls()))
                tell_store_calls(self._writer, self._store_calls)

    def _send(self, message: FromWorker) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    @property
    def job_count(self) -> int:
        """Jobs under way."""
        return len(self._jobs)

    def tell(self, message: FromWorker) -> None:
        """Send a small message."""
        self._send(message)

    async def stream(self, job_id: int, parts: Parts) -> None:
        """Send large data: waits while the pipe is full."""
        if not self._writer.is_closing():
            self._writer.writelines(data_frame(job_id, parts))
        with self._turns.read(sum(map(len, parts))):
            await self._writer.drain()
