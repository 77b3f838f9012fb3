"""Replicas in one process: drivers over forgetful disks, connected without a wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import fetched_batches, voter_set
from rlmm.quorum.network_ports import PeerFailedError, ProduceAnswer
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.quorum.server import DriverServer
from rlmm.raft.damaged_tail import NO_MEMORY
from rlmm.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    PeerRequest,
    PeerResponse,
    ReplicaKey,
)
from rlmm.raft.timers import RaftSettings
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels
from tests.rlmm.log.crash_disk import CrashDisk

METADATA = Path("/data/metadata")
NODES = (1, 2, 3)
QUICK = RaftSettings(
    election_timeout_ms=80,
    fetch_timeout_ms=160,
    election_backoff_max_ms=80,
    request_timeout_ms=200,
    retry_backoff_ms=5,
    pre_vote_retry_ms=20,
    fetch_wait_max_ms=40,
    shutdown_timeout_ms=100,
)


def voters_of(*node_ids: int) -> tuple[Voter, ...]:
    return tuple(
        Voter(node_id, directory_id(node_id), (Endpoint("QUORUM", f"node-{node_id}", 9),))
        for node_id in node_ids
    )


def directory_id(node_id: int) -> Uuid:
    return Uuid(b"directory-%06d" % node_id)


@dataclass
class Network:
    """Who can be reached; `cut` holds directed pairs that lose every message. `levels` are what
    nodes say of themselves, where it is not the usual. `delay_s` is asked for each message;
    `addresses` is what each node was last told of all others.
    """

    servers: dict[int, DriverServer] = field(default_factory=dict)
    cut: set[tuple[int, int]] = field(default_factory=set)
    levels: dict[int, FeatureLevels] = field(default_factory=dict)
    addresses: dict[int, Mapping[int, tuple[str, int]]] = field(default_factory=dict)
    settings: RaftSettings = QUICK
    delay_s: Callable[[], float] = float

    def isolate(self, node_id: int, others: tuple[int, ...]) -> None:
        for other in others:
            self.cut |= {(node_id, other), (other, node_id)}


class LocalPeers:
    """`Peers` of one node."""

    def __init__(self, network: Network, me: int) -> None:
        self._network = network
        self._me = me

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._network.addresses[self._me] = addresses

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                answer = await (await self._reached(node_id)).answer(request)
                await asyncio.sleep(self._network.delay_s())
                self._check(node_id, self._me)
        except (TimeoutError, RetryLater) as error:
            raise PeerFailedError("no answer") from error
        response = answer.response
        if isinstance(response, FetchResponse):
            batches = tuple(fetched_batches(answer.data, source="peer"))
            return replace(response, read=None, batches=batches)
        if isinstance(response, FetchSnapshotResponse):
            return replace(response, read=None, payload=answer.data, payload_bytes=len(answer.data))
        assert not hasattr(response, "message")
        return response  # type: ignore[return-value]  # a peer's request has a peer's response

    async def produce(self, node_id: int, records: bytes, *, deadline_ms: int) -> ProduceAnswer:
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                answer = await (await self._reached(node_id)).produce(records)
                await asyncio.sleep(self._network.delay_s())
        except (TimeoutError, RetryLater) as error:
            raise PeerFailedError("no answer") from error
        self._check(node_id, self._me)
        return answer

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:
        self._server(node_id)
        return self._network.levels.get(node_id, LEVELS_KNOWN)

    async def close(self) -> None:
        pass

    async def _reached(self, node_id: int) -> DriverServer:
        """Where a message arrives that sets out now."""
        server = self._server(node_id)
        delay_s = self._network.delay_s()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
            server = self._server(node_id)
        return server

    def _server(self, node_id: int) -> DriverServer:
        self._check(self._me, node_id)
        server = self._network.servers.get(node_id)
        if server is None:
            raise PeerFailedError("connection refused", sent=False)
        return server

    def _check(self, origin: int, destination: int) -> None:
        if (origin, destination) in self._network.cut:
            raise PeerFailedError("lost")


class Replica:
    """One node's disk, and its log while it runs. `bootstrap`: it joins a quorum of these nodes,
    with nothing but their addresses.
    """

    def __init__(
        self,
        network: Network,
        node_id: int,
        voters: tuple[Voter, ...],
        *,
        bootstrap: tuple[int, ...] = (),
        directory: Uuid | None = None,
    ) -> None:
        self.node_id = node_id
        self.directory_id = directory or directory_id(node_id)
        self._bootstrap = bootstrap or tuple(each.node_id for each in voters)
        self.disk = CrashDisk()
        self.failures: list[str] = []
        self._network = network
        self._voters = voters
        self._log: QuorumLog | None = None

    @property
    def log(self) -> QuorumLog:
        assert self._log is not None, "not running"
        return self._log

    @property
    def running(self) -> bool:
        return self._log is not None

    async def start(self, *, limits: LogLimits | None = None) -> QuorumLog:
        config = QuorumConfig(
            "cluster",
            ReplicaKey(self.node_id, str(self.directory_id)),
            voter_set(self._voters),
            bootstrap=tuple((node_id, f"node-{node_id}", 9) for node_id in self._bootstrap),
            settings=self._network.settings,
        )
        loop = asyncio.get_running_loop()
        fraction = (self.node_id * 0.37) % 1
        self._log = await QuorumLog.open(
            Place(METADATA, self.disk),
            config,
            LocalPeers(self._network, self.node_id),
            view_flushed_end=0,
            ambient=Ambient(
                lambda: int(loop.time() * 1000), loop.time, asyncio.sleep, lambda: fraction
            ),
            on_failure=self.failures.append,
            limits=limits,
        )
        self._network.servers[self.node_id] = DriverServer(self._log, now_ms=lambda: 7_000)
        return self._log

    async def stop(self) -> None:
        log, self._log = self.log, None
        await log.close()
        self._network.servers.pop(self.node_id, None)


@asynccontextmanager
async def quorum(network: Network) -> AsyncIterator[list[Replica]]:
    """Three voters; what a test appends to the list is stopped as well."""
    replicas = [Replica(network, node_id, voters_of(*NODES)) for node_id in NODES]
    for replica in replicas:
        await replica.start()
    try:
        yield replicas
    finally:
        for replica in replicas:
            if replica.running:
                await replica.stop()
    assert [replica.failures for replica in replicas] == [[]] * len(replicas)


class MayRun(Protocol):
    """A replica of this network, or of one with a wire."""

    @property
    def running(self) -> bool: ...

    @property
    def log(self) -> QuorumLog: ...


R = TypeVar("R", bound=MayRun)


async def leader_of(replicas: Sequence[R], *, deadline_s: float = 60) -> R:
    """The running replica that leads and has committed in its epoch. Those of a new quorum have all
    heard of it.
    """
    async with asyncio.timeout(deadline_s):
        while True:
            cores = [(each, each.log.driver.core) for each in replicas if each.running]
            if all(core.cut != NO_MEMORY for _, core in cores):
                for replica, core in cores:
                    if core.established:
                        return replica
            await asyncio.sleep(0.005)
