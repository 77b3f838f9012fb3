"""A store that fails on purpose.

Real stores fail in these three ways: an error before anything happened, an error after it happened
(the lost answer, the hard case), and a stream that breaks off. To the caller all look alike:
RetryLater.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, Read, Send, StoreWrapper
from rsm_backends.streams import closing_stream

_Answer = TypeVar("_Answer")


class FaultKind(Enum):
    """The kind of failure. TORN is for streams; other operations treat it as LOST_ANSWER."""

    NONE = "none"
    BEFORE_EFFECT = "before_effect"
    LOST_ANSWER = "lost_answer"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Fault:
    """The failure of one call, if any, and the delay in seconds before it."""

    kind: FaultKind = FaultKind.NONE
    latency_s: float = 0.0


class FaultPlan(Protocol):
    """Decides call by call. `operation` is the port's method name."""

    def next_fault(self, operation: str, key: str) -> Fault:
        """The fault for the call about to be made."""


class RandomFaults:
    """Each call fails with these probabilities; a seeded `random_fraction` replays a run."""

    def __init__(
        self,
        random_fraction: Callable[[], float],
        *,
        before_effect: float = 0.1,
        lost_answer: float = 0.1,
        torn: float = 0.1,
        latency_max_s: float = 0.0,
    ) -> None:
        self._random_fraction = random_fraction
        self._before_effect = before_effect
        self._lost_answer = lost_answer
        self._torn = torn
        self._latency_max_s = latency_max_s

    def next_fault(self, operation: str, key: str) -> Fault:
        drawn = self._random_fraction()
        latency_s = self._random_fraction() * self._latency_max_s
        if drawn < self._before_effect:
            return Fault(FaultKind.BEFORE_EFFECT, latency_s)
        drawn -= self._before_effect
        if operation != "get":
            lost = drawn < self._lost_answer
            return Fault(FaultKind.LOST_ANSWER if lost else FaultKind.NONE, latency_s)
        return Fault(FaultKind.TORN if drawn < self._torn else FaultKind.NONE, latency_s)


class ScriptedFaults:
    """Exactly these faults: a call takes the first remaining entry for its operation, if any."""

    def __init__(self, script: Iterable[tuple[str, FaultKind]]) -> None:
        self._script = list(script)

    @property
    def left(self) -> int:
        """Number of entries that no call has taken yet."""
        return len(self._script)

    def next_fault(self, operation: str, key: str) -> Fault:
        for at, (name, kind) in enumerate(self._script):
            if name == operation:
                del self._script[at]
                return Fault(kind)
        return Fault()


class FaultyStore(StoreWrapper):
    """`store`, with the faults of `plan`. `sleep` serves the plan's latencies."""

    def __init__(
        self,
        store: ObjectStore,
        plan: FaultPlan,
        *,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(store)
        self._plan = plan
        self._sleep = sleep

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        fault = await self._fate(call)
        if fault.kind is FaultKind.BEFORE_EFFECT:
            raise _planted(call)
        async with closing_stream(read(self._store, call.start)) as pieces:
            async for piece in pieces:
                if fault.kind is not FaultKind.NONE:
                    yield piece[: len(piece) // 2]
                    raise _planted(call)
                yield piece
        if fault.kind is not FaultKind.NONE:
            raise _planted(call)

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:
        fault = await self._fate(call)
        if fault.kind is FaultKind.NONE:
            return await send(self._store)
        if fault.kind is FaultKind.BEFORE_EFFECT:
            raise _planted(call)
        try:
            await send(self._store)
        except StrandlineError as error:
            raise _planted(call) from error  # a refusal may be lost like any answer
        raise _planted(call)

    async def _fate(self, call: PortCall) -> Fault:
        fault = self._plan.next_fault(call.operation, call.key)
        if fault.latency_s > 0 and self._sleep is not None:
            await self._sleep(fault.latency_s)
        return fault


def _planted(call: PortCall) -> RetryLater:
    return RetryLater(f"planted fault: {call} gave no answer")
