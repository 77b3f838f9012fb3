"""A read listener in a thread with an event loop of its own, as a node has one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

import uvloop

from kafka_listener.connections.brokers import Brokers, BrokerSecurity
from kafka_listener.connections.listener import ReadAccess, ReadLimits, ReadListener
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.reading.read_port import TierReads
from kafka_listener.virtual_nodes import Replica
from tests.real.ports import ports_in_a_row

REPLICA_ID = 100
DEADLINE_S = 60

Answer = TypeVar("Answer")


class Listening:
    """`with Listening(bootstrap, tier) as replica: ... replica.address`."""

    def __init__(
        self,
        bootstrap: str,
        tier: TierReads,
        limits: ReadLimits | None = None,
        *,
        brokers: int = 1,
        access: ReadAccess | None = None,
        security: BrokerSecurity | None = None,
    ) -> None:
        """`brokers`: their highest id."""
        host, _, port = bootstrap.rpartition(":")
        self._bootstrap = host, int(port)
        self._tier = tier
        self._limits = limits or ReadLimits()
        self._access = access or ReadAccess()
        self._security = security or BrokerSecurity()
        self.port = ports_in_a_row(2 + brokers)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """On its loop."""

        async def awaited() -> Answer:
            return await work()

        done: Future[Answer] = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        return done.result(DEADLINE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start)
        return self

    async def _start(self) -> None:
        replicas = LiveReplicas(Replica(REPLICA_ID, "127.0.0.1", self.port))
        brokers = Brokers((self._bootstrap,), "", time.monotonic, lambda: "nonce", self._security)
        self.listener = ReadListener(
            replicas, "127.0.0.1", brokers, self._tier, asyncio.sleep, self._limits, self._access
        )
        await self.listener.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.listener.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
