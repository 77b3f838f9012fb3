"""The network between nodes: `Peers` with lost, late, doubled and reordered messages.

Batches and snapshots travel as bytes, requests and answers as the core's objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_formats.errors import RetryLater
from rlmm.quorum.framing import fetched_batches
from rlmm.quorum.network_ports import Answer, PeerFailedError, ProduceAnswer
from rlmm.quorum.server import DriverServer
from rlmm.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    PeerRequest,
    PeerResponse,
    VoteRequest,
)
from rlmm.rows.feature_level import FeatureLevels
from sim.nodes.loop import Life, complete

if TYPE_CHECKING:
    from sim.nodes.machine import Machine
    from sim.nodes.world import World

T = TypeVar("T")
REFUSED_OF_TEN = 5


class SimulatedPeers:
    """`Peers` of one life of one machine."""

    def __init__(self, world: World, machine: Machine, life: Life) -> None:
        self._world = world
        self._machine = machine
        self._life = life
        self._addresses: dict[int, tuple[str, int]] = {}

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._addresses = dict(addresses)

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:
        auditor = self._world.auditor
        auditor.asking(self._machine, request)

        async def answer(target: Machine, server: DriverServer) -> Answer:
            if isinstance(request, VoteRequest) and request.pre_vote and not target.knows_pre_vote:
                raise PeerFailedError("an old program", unsupported_version=True)
            auditor.downloads.asked(target, request)
            told = await server.answer(request)
            auditor.downloads.answering(target, request, told)
            auditor.answering(target, request, told.response)
            return told

        heard = await self._exchange(node_id, answer, deadline_ms, again=True)
        response = heard.response
        if isinstance(response, FetchResponse):
            batches = tuple(fetched_batches(heard.data, source="peer"))
            return replace(response, read=None, batches=batches)
        if isinstance(response, FetchSnapshotResponse):
            return replace(response, read=None, payload=heard.data, payload_bytes=len(heard.data))
        assert not hasattr(response, "message")
        return response  # type: ignore[return-value]  # a peer's request has a peer's response

    async def produce(self, node_id: int, records: bytes, *, deadline_ms: int) -> ProduceAnswer:
        """Produce once: a connection neither doubles a request nor repeats it when opened anew."""

        async def answer(_: Machine, server: DriverServer) -> ProduceAnswer:
            return await server.produce(records)

        return await self._exchange(node_id, answer, deadline_ms, again=False)

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:
        """Fail, since this is not simulated: the tests want an old program to stop by itself."""
        raise PeerFailedError(f"node {node_id} was not asked within {deadline_ms} ms")

    async def close(self) -> None:
        pass

    async def _exchange(
        self,
        node_id: int,
        answer: Callable[[Machine, DriverServer], Coroutine[Any, Any, T]],
        deadline_ms: int,
        *,
        again: bool,
    ) -> T:
        address = self._addresses.get(node_id)
        if address is None:
            raise PeerFailedError(f"node {node_id}: its address is not known", sent=False)
        world, source = self._world, self._machine
        target = world.resolve(address[0])
        heard: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def lost() -> None:
            _fail(heard, PeerFailedError("connection lost"))

        def deliver() -> None:
            process = target.process
            if process is None or process.server is None:
                if world.random.randrange(10) < REFUSED_OF_TEN:
                    world.network.send(
                        target.name,
                        source.name,
                        partial(_fail, heard, PeerFailedError("refused", sent=False)),
                        lost=lost,
                        again=False,
                    )
                return
            world.message(target)
            serving = self._serve(target, process.server, answer, heard)
            world.loop.spawn(process.life, serving)

        world.network.send(source.name, target.name, deliver, lost=lost, again=again)
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                return await heard
        except TimeoutError as error:
            raise PeerFailedError("no answer") from error

    async def _serve(
        self,
        target: Machine,
        server: DriverServer,
        answer: Callable[[Machine, DriverServer], Coroutine[Any, Any, T]],
        heard: asyncio.Future[T],
    ) -> None:
        """Answer in the life of the node asked."""
        told: Callable[[], None]
        try:
            told = partial(complete, heard, await answer(target, server))
        except PeerFailedError as error:
            told = partial(_fail, heard, error)
        except RetryLater:
            told = partial(_fail, heard, PeerFailedError("the node stops"))
        lost = partial(_fail, heard, PeerFailedError("connection lost"))
        self._world.network.send(target.name, self._machine.name, told, lost=lost, again=False)


def _fail(heard: asyncio.Future[Any], error: PeerFailedError) -> None:
    if not heard.done():
        heard.set_exception(error)
        heard.exception()  # perhaps nobody waits any more
