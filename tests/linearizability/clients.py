"""Concurrent clients of a metadata quorum, and the history of what they asked and heard.

Topics are registers (`policy_register`). A group of clients uses one topic after the other, so that
there are many keys with few clients and a bounded number of operations each: a longer history of
one key could not be judged any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from kafka_formats.errors import OutcomeUnknown, RetryLater
from tests.linearizability.checker import Operation
from tests.linearizability.policy_register import (
    UNSET,
    Call,
    Done,
    PolicyOperation,
    Read,
    Refused,
    Result,
    Seen,
    Set,
)

OPERATIONS_A_TOPIC = 300
ATTEMPTS_MAX = 3
STAY = 0.9
PAUSE_S = 0.01


class Endpoint(Protocol):
    """One node, as clients reach it. RetryLater: nothing happened. OutcomeUnknown: no answer."""

    async def read(self, topic: str) -> Seen: ...

    async def set(self, topic: str, value: int, replaces: int) -> Done | Refused:
        """Without an answer it may have happened, or happen later."""
        ...


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A change that a client was told is done, at its metadata offset."""

    offset: int
    topic: str
    value: int
    replaces: int


class Clients:
    """`run` until `stop`; then `history` is what they saw. `unheard`: why the last read failed."""

    repeat_unknown = 0.5

    def __init__(
        self, endpoints: Sequence[Endpoint], *, seed: int, groups: int = 4, each: int = 4
    ) -> None:
        self.history: list[PolicyOperation] = []
        self.acknowledged: list[Acknowledged] = []
        self.topics: list[str] = []
        self.unknown = 0
        self.unheard = ""
        self.stopping = False
        self._endpoints = endpoints
        self._seed = seed
        self._groups, self._each = groups, each
        self._clock = count()
        self._values = count(1)
        self._left = [0] * groups
        self._topic = [""] * groups

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._groups * self._each):
                tasks.create_task(self._client(number))

    def stop(self) -> None:
        """No new operations; `run` ends with the last that is under way."""
        self.stopping = True

    async def read_everything(self, *, deadline_s: float) -> None:
        """Every topic at every node once more; `deadline_s` is for each of them, so that only one
        that is never answered ends it.
        """
        for endpoint in self._endpoints:
            for topic in self.topics:
                try:
                    async with asyncio.timeout(deadline_s):
                        while await self._read(-1, topic, endpoint) is None:
                            await asyncio.sleep(PAUSE_S)
                except TimeoutError as error:
                    raise AssertionError(
                        f"{topic} could not be read in peace for {deadline_s:g} s: {self.unheard}"
                    ) from error

    async def _client(self, number: int) -> None:
        choose = random.Random(f"{self._seed}-{number}")
        endpoint = self._endpoints[number % len(self._endpoints)]
        topic, version = "", UNSET
        while not self.stopping:
            if topic != (topic := self._next_topic(number % self._groups)):
                version = UNSET
            if choose.random() < 0.5:
                seen = await self._read(number, topic, endpoint)
                heard = seen is not None
                if seen is not None:
                    version = seen.version
            else:
                done = await self._set(number, topic, version, endpoint, choose)
                heard = done is not None
                if isinstance(done, Done) and done.version is not None:
                    version = done.version
            if not heard or choose.random() > STAY:
                endpoint = choose.choice(self._endpoints)
                await asyncio.sleep(PAUSE_S)

    def _next_topic(self, group: int) -> str:
        if not self._left[group]:
            self._left[group] = OPERATIONS_A_TOPIC
            self._topic[group] = f"topic-{len(self.topics)}"
            self.topics.append(self._topic[group])
        self._left[group] -= 1
        return self._topic[group]

    async def _read(self, client: int, topic: str, endpoint: Endpoint) -> Seen | None:
        invoked = next(self._clock)
        try:
            seen = await endpoint.read(topic)
        except (OutcomeUnknown, RetryLater) as error:
            self.unheard = str(error)
            return None  # it changed nothing and nobody heard anything
        self._record(client, topic, Read(), invoked, seen)
        return seen

    async def _set(
        self, client: int, topic: str, version: int, endpoint: Endpoint, choose: random.Random
    ) -> Done | Refused | None:
        """One operation, which repeats an unknown outcome with equal content now and then."""
        call, invoked = Set(next(self._values), version), next(self._clock)
        in_doubt = False
        for _ in range(ATTEMPTS_MAX):
            try:
                result = await endpoint.set(topic, call.value, version)
            except OutcomeUnknown:
                in_doubt = True
                if choose.random() < self.repeat_unknown:
                    endpoint = choose.choice(self._endpoints)
                    continue
                break
            except RetryLater:
                break
            if not in_doubt:
                if isinstance(result, Done) and result.version is not None:
                    mark = Acknowledged(result.version, topic, call.value, version)
                    self.acknowledged.append(mark)
                self._record(client, topic, call, invoked, result)
                return result
            if isinstance(result, Done):
                result = Done(None)
                self._record(client, topic, call, invoked, result)
                return result
            break  # refused, perhaps because the first attempt was done and then replaced
        if in_doubt:
            self._in_doubt(client, topic, call, invoked)
        return None

    def _in_doubt(self, client: int, topic: str, call: Set, invoked: int) -> None:
        self.unknown += 1
        self.history.append(Operation(topic, client, call, invoked))

    def _record(self, client: int, topic: str, call: Call, invoked: int, result: Result) -> None:
        self.history.append(Operation(topic, client, call, invoked, next(self._clock), result))
