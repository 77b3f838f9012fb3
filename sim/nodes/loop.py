"""An asyncio event loop without real time, threads or sockets, on which the shipped shell runs.

All nodes share it. Every callback belongs to the *life* it was made in (a context variable that
tasks and callbacks inherit): callbacks of a paused life wait, those of a dead one never run. A job
of an executor runs at a moment that the world chooses, and its result arrives later still. Another
thread's job may run in the middle of it (`let_others_run`), and one of the default executor may
stop in the middle while everything goes on (`halt`).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from functools import partial
from random import Random
from traceback import extract_tb
from typing import Any, TypeVarTuple

from kafka_formats.errors import StrandlineError
from sim.core.invariants import InvariantError
from sim.ground.clock import Schedule
from sim.ground.forgetful_disk import PowerCut
from sim.nodes.halting import HaltingJob, running_job

log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")

CLOSE_ATTEMPTS_MAX = 20
TURNS_MAX = 20_000
"""Callbacks at one instant before the loop counts as stuck."""
_FORESEEN = (StrandlineError, OSError, InvariantError)
"""Errors with an answer, and one that the auditor has noted."""


@dataclass(eq=False)
class Life:
    """One process of one machine, from start to death."""

    name: str
    alive: bool = True
    paused: bool = False
    latency_ms: int = 2
    """Longest time of a job in an executor."""
    busy_until_ms: int = 0
    """The time until which the event loop is busy: no callback runs before."""
    backlog: deque[asyncio.Handle] = field(default_factory=deque)
    held: list[Callable[[], None]] = field(default_factory=list)
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    lanes: dict[Executor, Lane] = field(default_factory=dict)
    halted: list[HaltingJob] = field(default_factory=list)


@dataclass(eq=False)
class Lane:
    """A thread: one job at a time, results in order."""

    jobs: deque[Job] = field(default_factory=deque)
    current: Job | None = None
    """Waits for its moment."""
    heard_ms: int = 0
    slow_ms: int = 0
    """Longest time of a job beyond that of its process."""


@dataclass(eq=False)
class Job:
    """The next call of a thread, and whom it tells. `may_halt`: it has a thread of its own."""

    life: Life
    lane: Lane
    future: asyncio.Future[Any]
    call: Callable[[], Any]
    may_halt: bool = False


LIFE: ContextVar[Life | None] = ContextVar("life", default=None)


class _OwnedHandle(asyncio.Handle):
    __slots__ = ("life",)
    life: Life | None


class _OwnedTimer(asyncio.TimerHandle):
    __slots__ = ("life",)
    life: Life | None


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop; call `turn` until nothing is left. `on_power_cut` hears whose machine went off in a
    job, `on_job` of every job; `failures` are exceptions that nothing caught, or nodes logged.
    """

    def __init__(
        self,
        schedule: Schedule,
        random: Random,
        *,
        on_power_cut: Callable[[Life], None],
        on_job: Callable[[Life | None], None],
    ) -> None:
        super().__init__()
        self.failures: list[str] = []
        self.looks = 0
        """Number of directory listings by the running callback."""
        self._schedule = schedule
        self._random = random
        self._on_power_cut = on_power_cut
        self._on_job = on_job
        self._turns: deque[asyncio.Handle] = deque()
        self._running: Job | None = None
        self.jobs_halt = False
        """True if jobs of the default executor may stop in the middle."""

    # ---- running

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the running loop; close it at the end."""
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)
            self.close()

    def turn(self) -> bool:
        """Run everything that is ready, else the next thing in time; False if there was nothing."""
        if not self._turns:
            return self._schedule.run_next()
        for _ in range(TURNS_MAX):
            if not self._turns:
                return True
            self._dispatch(self._turns.popleft())
        raise AssertionError(f"callbacks without end at {self._schedule.now_ms} ms")

    def _dispatch(self, handle: asyncio.Handle) -> None:
        life: Life | None = handle.life  # type: ignore[attr-defined]  # all handles are owned ones
        if life is not None:
            if not life.alive:
                return
            if life.paused:
                life.held.append(partial(self._turns.append, handle))
                return
            if life.backlog or life.busy_until_ms > self._schedule.now_ms:
                life.backlog.append(handle)
                if len(life.backlog) == 1:
                    self._work_off(life)
                return
        self._run(handle)

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self.looks = 0
            handle._run()

    def _work_off(self, life: Life) -> None:
        """Run waiting callbacks in order, until the loop is busy again."""
        while life.backlog and life.alive:
            if life.paused:
                life.held.append(partial(self._work_off, life))
                return
            if (wait_ms := life.busy_until_ms - self._schedule.now_ms) > 0:
                self._schedule.after(wait_ms, partial(self._work_off, life))
                return
            self._run(life.backlog[0])
            life.backlog.popleft()

    def resume(self, life: Life) -> None:
        """Run everything that happened during the pause."""
        life.paused = False
        held, life.held = life.held, []
        for call in held:
            call()

    def kill(self, life: Life) -> None:
        """End a life. Its coroutines are closed here, not whenever they are collected; what they
        log then is nobody's mistake.
        """
        life.alive = False
        known = len(self.failures)
        for task in tuple(life.tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # no complaint at its end
            coroutine = task.get_coro()
            for _ in range(CLOSE_ATTEMPTS_MAX):
                with suppress(Exception, asyncio.CancelledError, PowerCut):
                    if isinstance(coroutine, Coroutine):
                        coroutine.close()
                    break
        life.tasks.clear()
        life.held.clear()
        halted, life.halted = life.halted, []
        for job in halted:
            job.go_on()  # to its end: `halt` finds the life over
        del self.failures[known:]

    def spawn(self, life: Life, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of that life. Nothing waits for it, so it must not fail."""
        context = Context()
        context.run(LIFE.set, life)
        task = self.create_task(coroutine, context=context)
        task.add_done_callback(partial(self._ended, life))
        return task

    def _ended(self, life: Life, task: asyncio.Task[Any]) -> None:
        if life.alive and not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(f"{life.name}: {error!r} in {task.get_coro()}")
            log.debug("a task failed", exc_info=error)

    # ---- what asyncio asks of a loop

    def time(self) -> float:
        return self._schedule.now_ms / 1000

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = _OwnedHandle(callback, args, self, context)
        handle.life = LIFE.get() if context is None else context.get(LIFE)
        self._turns.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _OwnedTimer(when, callback, args, self, context)
        handle.life = LIFE.get() if context is None else context.get(LIFE)
        # Never early: half a millisecond is as good as one.
        due_ms = int(-(-when * 1000 // 1))
        self._schedule.after(due_ms - self._schedule.now_ms, partial(self._due, handle))
        return handle

    def _due(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self._turns.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the schedule and does nothing there."""

    def create_task(  # type: ignore[override]  # names and contexts only
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        life = LIFE.get() if context is None else context.get(LIFE)
        if life is not None and life.alive:
            life.tasks[task] = None
            task.add_done_callback(partial(_forget, life))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record only errors raised by callbacks; others come when something is collected."""
        if "handle" in context:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    # ---- executors

    def run_in_executor(  # type: ignore[override]  # no types of the called function's arguments
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        life = LIFE.get()
        assert life is not None, "outside of any life"
        future: asyncio.Future[Any] = self.create_future()
        if not life.alive:
            return future
        lane = Lane() if executor is None else life.lanes.setdefault(executor, Lane())
        may_halt = executor is None and self.jobs_halt
        lane.jobs.append(Job(life, lane, future, partial(func, *args), may_halt))
        self._start(life, lane)
        return future

    def let_others_run(self) -> None:
        """Run what other threads of the process have, in the middle of a job. PowerCut: the machine
        went off meanwhile.
        """
        running = self._running
        if running is None:
            return
        for lane in tuple(running.life.lanes.values()):
            if lane is not running.lane and lane.current is not None:
                self._work(lane.current)
            if not running.life.alive:
                raise PowerCut

    def _start(self, life: Life, lane: Lane) -> None:
        if lane.jobs and lane.current is None:
            job = lane.current = lane.jobs.popleft()
            self._schedule.after(self._latency(life, lane), partial(self._work, job))

    def _latency(self, life: Life, lane: Lane) -> int:
        return self._random.randrange(life.latency_ms + lane.slow_ms + 1)

    def _work(self, job: Job) -> None:
        life, lane = job.life, job.lane
        if not life.alive or lane.current is not job:
            return
        if life.paused:
            life.held.append(partial(self._work, job))
            return
        lane.current = None
        if job.future.cancelled():
            self._start(life, lane)
            return
        self._on_job(life)
        if job.may_halt:
            self._begin(job)
        else:
            self._done(job, self._call(job))

    def _done(self, job: Job, told: Callable[[], None] | None) -> None:
        if told is None:
            return
        life, lane = job.life, job.lane
        delay_ms = max(self._latency(life, lane), lane.heard_ms - self._schedule.now_ms)
        lane.heard_ms = self._schedule.now_ms + delay_ms
        self._schedule.after(delay_ms, partial(self._tell, life, told))
        self._start(life, lane)

    def _begin(self, job: Job) -> None:
        """Run a job in a thread of its own, in which it may stop."""
        told: list[Callable[[], None] | None] = []
        life = job.life

        def halted(halt_ms: int) -> None:
            life.halted.append(thread)
            self._schedule.after(halt_ms, partial(self._go_on, life, thread))

        def ended() -> None:
            if life.alive:
                self._done(job, told[0])

        def call() -> None:
            told.append(self._call(job))

        thread = HaltingJob(self, call, halted=halted, ended=ended)
        self._resume_job(thread)

    def _go_on(self, life: Life, thread: HaltingJob) -> None:
        if life.paused:
            life.held.append(partial(self._go_on, life, thread))
        elif thread in life.halted:
            life.halted.remove(thread)
            self._resume_job(thread)

    def _resume_job(self, thread: HaltingJob) -> None:
        running = self._running
        thread.go_on()
        self._running = running

    def halt(self, halt_ms: int) -> None:
        """Stop the running job for so long, if it can. PowerCut: its process ended meanwhile."""
        thread, life = running_job(), LIFE.get()
        if thread is not None and life is not None:
            thread.halt(halt_ms)
            if not life.alive:
                raise PowerCut

    def _call(self, job: Job) -> Callable[[], None] | None:
        """The call that completes the future; None: the machine went off."""
        context = Context()
        context.run(LIFE.set, job.life)
        outer, self._running = self._running, None if self._running is not None else job
        try:
            return partial(complete, job.future, context.run(job.call))
        except PowerCut:
            if job.life.alive:
                self._on_power_cut(job.life)
            return None
        except Exception as error:  # noqa: BLE001 - whoever awaits the future hears it
            return partial(fail, job.future, error)
        finally:
            self._running = outer

    def _tell(self, life: Life, told: Callable[[], None]) -> None:
        if not life.alive:
            return
        if life.paused:
            life.held.append(told)
        else:
            told()


def _forget(life: Life, task: asyncio.Task[Any]) -> None:
    if life.alive:
        life.tasks.pop(task, None)


def complete(future: asyncio.Future[Any], result: object) -> None:
    """Set a result, unless the future is done: its waiter may have gone."""
    if not future.done():
        future.set_result(result)


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Set an error, unless the future is done."""
    if not future.done():
        future.set_exception(error)


class _Mistakes(logging.Handler):
    """Notes errors of the program itself, which the nodes log and survive."""

    def __init__(self, failures: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and not isinstance(error, _FORESEEN):
            at = extract_tb(error.__traceback__)[-1]
            self._failures.append(f"{record.getMessage()}: {error!r} in {at.filename}:{at.lineno}")


@contextmanager
def silence(failures: list[str]) -> Iterator[None]:
    """Silence the nodes' loggers; what they log with an error that is a mistake of the program
    goes to `failures`.
    """
    loggers = [logging.getLogger(name) for name in ("rlm", "rlmm", "rsm_backends")]
    before = [(each.level, each.propagate) for each in loggers]
    mistakes = _Mistakes(failures)
    for each in loggers:
        each.setLevel(logging.WARNING)
        each.propagate = False
        each.addHandler(mistakes)
    try:
        yield
    finally:
        for each, (level, propagate) in zip(loggers, before, strict=True):
            each.removeHandler(mistakes)
            each.setLevel(level)
            each.propagate = propagate
