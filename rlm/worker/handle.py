"""The supervisor's side of one live worker process: start, calls, watch, end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from kafka_formats.errors import InternalError, RetryLater
from rlm.control.log_levels import LogArea, LogLevel
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import BatchesRequest, SendRules
from rlm.quota.flow_limits import Flow, Paces
from rlm.worker.call import Call, CallMessage
from rlm.worker.descriptor_channel import send_descriptor
from rlm.worker.messages import (
    STREAM_LIMIT_BYTES,
    Failed,
    Granted,
    Heartbeat,
    ReadReady,
    Ready,
    Request,
    SendToClient,
    SetLogLevels,
    SetPaces,
    StartJob,
    StoreCalls,
    TakeBytes,
    TakeNoBytes,
    ToWorker,
    Welcome,
    frame,
    receive,
)
from rlm.worker.store_calls import OnStoreCall, ignore_store_call

END_GRACE_S = 6.0
"""Seconds that a worker may take to end when asked to; longer than its own grace."""

_WATCHES_PER_DEADLINE = 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Bounds of the pool, which keeps `count` workers up.

    `silence_deadline_s`: a worker that sends no message for longer is killed. `cancel_deadline_s`:
    so is one that does not confirm a cancellation in time, since its uploads must be known to have
    ended. `stream_stall_s`: any job but a copy fails if it makes no progress for longer. At most
    `window_frames` of 256 KiB wait for a slow reader. `jobs_max` is per worker; further calls raise
    RetryLater. Batches that a worker holds until their client has taken them do not count as jobs:
    clients that take no bytes would otherwise stop all reads, and the node's copies. At most
    `held_max` such answers are held: more than `read.connections_max` clients of 16 partitions each
    need; the listener bounds their bytes. `crashes_told` ends within `crash_window_s` are a problem
    of the node; a worker that lived that long is restarted without a longer back-off. While
    `left_behind_max` killed workers have not ended, none is started: each may keep its memory.
    """

    count: int = 1
    start_deadline_s: float = 20.0
    silence_deadline_s: float = 60.0
    cancel_deadline_s: float = 45.0
    stream_stall_s: float = 120.0
    jobs_max: int = 128
    held_max: int = 16_384
    window_frames: int = 8
    restart_backoff_base_s: float = 0.2
    restart_backoff_max_s: float = 10.0
    crashes_told: int = 3
    crash_window_s: float = 600.0
    left_behind_max: int = 4
    cache_bytes_max: int = 64 * 2**20
    chunk_cache_bytes_max: int = 0
    read_ahead_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class WorkerAmbient:
    """The clock and the sleep of the watch."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


TakeFlow = Callable[[Flow, str | None, int], Awaitable[None]]
"""Called with direction, topic and size; returns when that many bytes may move."""


async def take_no_flow(_flow: Flow, _topic: str | None, _size: int) -> None:
    """The `TakeFlow` without limits: returns at once."""


class LeftBehind(Protocol):
    """A process that was killed and has not ended."""

    @property
    def pid(self) -> int: ...

    @property
    def is_left_behind(self) -> bool: ...


def ignore_left_behind(_: LeftBehind) -> None:
    """An `on_left_behind` for callers that start one worker."""


class _Process(NamedTuple):
    """A worker's process and our ends of its two socket pairs."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    descriptors: socket.socket

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_left_behind(self) -> bool:
        return self.process.returncode is None

    async def end(self, deadline_s: float | None = None) -> None:
        """Kill the process, close its sockets, and wait for its end, or up to the deadline."""
        self.writer.close()
        self.descriptors.close()
        _kill(self.process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self.process.wait()


class WorkerHandle:
    """A started and ready worker. `dead` is set once the process is gone and every call failed.

    A killed worker that does not end because of a hanging disk is left behind: it counts as gone
    `END_GRACE_S` after its kill, since none of its threads returns from the kernel. `told` is its
    last heartbeat.
    """

    def __init__(
        self,
        started: _Process,
        limits: WorkerLimits,
        ambient: WorkerAmbient,
        on_store_call: OnStoreCall = ignore_store_call,
        take: TakeFlow = take_no_flow,
    ) -> None:
        self._started = started
        self._process, self._reader, self._writer, self._descriptors = started
        self.dead = asyncio.Event()
        self.told = Heartbeat()
        self._take = take
        self._grants: dict[int, asyncio.Task[None]] = {}
        self._limits = limits
        self._ambient = ambient
        self._on_store_call = on_store_call
        self._calls: dict[int, tuple[Call, bool]] = {}
        self._holding: set[int] = set()
        self._job_ids = 0
        self._last_heard = ambient.monotonic()
        self._killed_at: float | None = None
        self._why = ""
        self._tasks = (
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._watch()),
        )

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        welcome: Welcome,
        limits: WorkerLimits,
        ambient: WorkerAmbient,
        on_store_call: OnStoreCall = ignore_store_call,
        take: TakeFlow = take_no_flow,
        on_left_behind: Callable[[LeftBehind], None] = ignore_left_behind,
    ) -> WorkerHandle:
        """Start a process and wait until it is ready.

        RetryLater if that takes too long; the worker's own error if it sends one. `on_left_behind`
        is called with a process that did not get ready and does not end, because of a hanging disk.
        """
        process, ours, descriptors, descriptors_fd = await _start_process(command)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=STREAM_LIMIT_BYTES)
        started = _Process(process, reader, writer, descriptors)
        try:
            async with asyncio.timeout(limits.start_deadline_s):
                writer.write(frame(replace(welcome, descriptors_fd=descriptors_fd)))
                first = await receive(reader)
        except BaseException as error:
            await started.end(END_GRACE_S)
            if started.is_left_behind:
                on_left_behind(started)
            if isinstance(error, TimeoutError):
                raise RetryLater(
                    f"a worker process was not ready within {limits.start_deadline_s:g} s"
                ) from error
            raise
        if isinstance(first, Ready):
            return cls(started, limits, ambient, on_store_call, take)
        await started.end()
        if isinstance(first, Failed):
            raise first.error
        raise RetryLater(f"a worker process ended while it started ({_ending(process)})")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ending(self) -> str:
        """A description of how and why the process ended."""
        return f"{self._why or 'by itself'}; {_ending(self._process)}"

    @property
    def is_killed(self) -> bool:
        """True if the worker was killed and must get no more calls."""
        return self._killed_at is not None

    @property
    def is_left_behind(self) -> bool:
        """True if the worker was given up, but its process still exists."""
        return self.dead.is_set() and self._process.returncode is None

    @property
    def jobs(self) -> int:
        """Calls that the worker has not ended."""
        return len(self._calls)

    @property
    def jobs_at_work(self) -> int:
        """Calls for which the worker reads or writes: all but those that hold batches."""
        return len(self._calls) - len(self._holding)

    def call(self, request: Request, *, waits: bool = False) -> Call:
        """Start a job. RetryLater if the worker is dead, has `jobs_max` already, or holds
        `held_max` batches and would hold more.
        """
        if self.dead.is_set() or self.is_killed or self._writer.is_closing():
            raise RetryLater("the worker process has just died")
        if self.jobs_at_work >= self._limits.jobs_max:
            raise RetryLater(f"the worker process has {self.jobs_at_work} jobs already")
        held = len(self._holding)
        if held >= self._limits.held_max and isinstance(request, BatchesRequest):
            raise RetryLater(f"the worker process holds {held} answers for slow clients already")
        self._job_ids += 1
        call = Call(self._job_ids, self._send, self._ambient.monotonic, self._lend)
        self._calls[call.job_id] = (call, isinstance(request, CopyJob))
        self._send(StartJob(call.job_id, request, waits))
        return call

    def set_paces(self, paces: Paces) -> None:
        """Send new limits to the worker."""
        self._send(SetPaces(paces))

    def set_log_levels(self, levels: Mapping[LogArea, LogLevel]) -> None:
        """Send new log levels to the worker."""
        self._send(SetLogLevels(levels))

    def look_for_keys(self) -> None:
        """Have the worker read its stores' keys again."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGHUP)

    def kill(self, why: str) -> None:
        """End the process at once; its calls fail with `why`."""
        if not self.dead.is_set() and not self._why:
            self._why = why
            _log.error("worker process %s is killed: %s", self.pid, why)
        if self._killed_at is None:
            self._killed_at = self._ambient.monotonic()
        _kill(self._process)

    async def close(self) -> None:
        """Have the worker end, wait for it, and kill it if it does not end. Takes at most
        `END_GRACE_S` twice. Idempotent.
        """
        self._why = self._why or "the node is closing"
        listening, watching = self._tasks
        watching.cancel()
        if not self.dead.is_set():
            if not self._writer.is_closing():
                self._writer.write_eof()
            if not await _ends(listening):
                self.kill("it did not end in time")
                if not await _ends(listening):
                    self._leave_behind()
        await asyncio.gather(watching, return_exceptions=True)

    async def _listen(self) -> None:
        """Deliver the worker's messages until it is gone."""
        try:
            while (message := await receive(self._reader)) is not None:
                self._last_heard = self._ambient.monotonic()
                if isinstance(message, Heartbeat):
                    self.told = message
                    continue
                if isinstance(message, StoreCalls):
                    for store, call in message.calls:
                        self._on_store_call(store, call)
                    continue
                if isinstance(message, TakeBytes):
                    self._grant(message)
                    continue
                if isinstance(message, TakeNoBytes):
                    if message.number in self._grants:
                        self._grants[message.number].cancel()
                    continue
                if not isinstance(message, CallMessage):
                    raise InternalError(f"a worker does not send {type(message).__name__}")
                self._deliver(message)
        except Exception:  # noqa: BLE001 - the task's top: the worker is given up below
            _log.exception("a worker process sent a message that cannot be read")
        await self._started.end()
        self._fail_calls()

    def _deliver(self, message: CallMessage) -> None:
        known = self._calls.get(message.job_id)
        if known is None:
            return
        if isinstance(message, ReadReady) and message.found is not None:
            self._holding.add(message.job_id)
        known[0].deliver(message)
        if known[0].finished.is_set():
            del self._calls[message.job_id]
            self._holding.discard(message.job_id)

    def _grant(self, asked: TakeBytes) -> None:
        """Send Granted once the bytes may move, unless the worker withdraws its TakeBytes; bounded
        by its requests under way.
        """

        async def grant() -> None:
            await self._take(asked.flow, asked.topic, asked.size)
            self._send(Granted(asked.number))

        task = asyncio.create_task(grant(), name=f"grant {asked.size} bytes to worker {self.pid}")
        self._grants[asked.number] = task
        task.add_done_callback(lambda _: self._grants.pop(asked.number))

    async def _watch(self) -> None:
        """Kill a worker that sends no messages or does not confirm a cancellation; fail reads
        without data.
        """
        limits = self._limits
        interval_s = (
            min(limits.silence_deadline_s, limits.cancel_deadline_s, limits.stream_stall_s)
            / _WATCHES_PER_DEADLINE
        )
        looked_at = self._ambient.monotonic()
        while not self.dead.is_set():
            await self._ambient.sleep(interval_s)
            now = self._ambient.monotonic()
            if now - looked_at > limits.silence_deadline_s / 2:
                self._last_heard = now  # this process was suspended; the worker may not have been
            looked_at = now
            if now - self._last_heard > limits.silence_deadline_s:
                self.kill(f"it was silent for {limits.silence_deadline_s:g} s")
            if self._killed_at is not None and now - self._killed_at > END_GRACE_S:
                self._leave_behind()
                return
            for call, is_copy in tuple(self._calls.values()):
                if call.cancelled_at is not None:
                    if now - call.cancelled_at > limits.cancel_deadline_s:
                        self.kill(f"no cancellation within {limits.cancel_deadline_s:g} s")
                elif (
                    not is_copy
                    and call.waiting_since is not None
                    and now - call.waiting_since > limits.stream_stall_s
                ):
                    call.give_up(
                        RetryLater(f"the read made no progress for {limits.stream_stall_s:g} s")
                    )

    def _send(self, message: ToWorker) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    def _lend(
        self, job_id: int, descriptor: int, rules: SendRules, further: FurtherRequests | None
    ) -> None:
        if self.dead.is_set() or self._writer.is_closing():
            raise RetryLater("the worker process has just died")
        send_descriptor(self._descriptors, job_id, descriptor)
        self._send(SendToClient(job_id, rules, further))

    def _leave_behind(self) -> None:
        self._why += f"; it does not end within {END_GRACE_S:g} s: check whether a disk hangs"
        _log.error("worker process %s is left behind: %s", self.pid, self._why)
        self._writer.close()
        self._descriptors.close()
        self._fail_calls()

    def _fail_calls(self) -> None:
        self.dead.set()
        for grant in self._grants.values():
            grant.cancel()
        for call, _ in self._calls.values():
            call.fail(RetryLater(f"the worker process {self.pid} ended ({self.ending})"))
        self._calls.clear()
        self._holding.clear()


async def _start_process(
    command: Sequence[str],
) -> tuple[asyncio.subprocess.Process, socket.socket, socket.socket, int]:
    """A new process, our ends of its two socket pairs, and its own descriptor of the second."""
    with contextlib.ExitStack() as ours_open, contextlib.ExitStack() as theirs_open:
        try:
            ours, theirs = _socket_pair(ours_open, theirs_open)
            descriptors, their_descriptors = _socket_pair(ours_open, theirs_open)
            # In a session of its own: only the supervisor takes Ctrl-C from the terminal.
            process = await asyncio.create_subprocess_exec(
                *command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), their_descriptors.fileno()),
                start_new_session=True,
            )
        except OSError as error:
            raise RetryLater(f"a worker process cannot be started: {error}") from error
        ours_open.pop_all()
        return process, ours, descriptors, their_descriptors.fileno()


def _socket_pair(
    ours_open: contextlib.ExitStack, theirs_open: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    """A socket pair; each end is closed with the exit stack of its side."""
    ours, theirs = socket.socketpair()
    return ours_open.enter_context(ours), theirs_open.enter_context(theirs)


async def _ends(listening: asyncio.Task[None]) -> bool:
    """True if the task ends within `END_GRACE_S`."""
    done, _ = await asyncio.wait({listening}, timeout=END_GRACE_S)
    return bool(done)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL. `Process.kill` would poll first, and so take the exit status from asyncio."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _ending(process: asyncio.subprocess.Process) -> str:
    code = process.returncode
    if code is None:
        return "still running"
    return f"signal {-code}" if code < 0 else f"exit status {code}"
