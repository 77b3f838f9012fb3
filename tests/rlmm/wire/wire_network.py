"""Replicas in one process over real sockets: `QuorumLog`, `WirePeers` and `QuorumListener` each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafka_client.sasl import SaslCredentials
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.disk import Disk, OsDisk
from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.quorum.server import DriverServer
from rlmm.raft.messages import ReplicaKey
from rlmm.raft.timers import RaftSettings
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.listener import QuorumListener
from rlmm.wire.peer_connection import PeerSecurity
from rlmm.wire.peers import PeerLimits, WirePeers
from rlmm.wire.sasl_server import PEER_USER, SCRAM
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from rlmm.wire.server_connection import ListenerLimits
from strandline.node import ambient
from tests.real.ports import free_ports
from tests.rlmm.log.crash_disk import CrashDisk, Survivors
from tests.rlmm.quorum.local_network import METADATA, directory_id
from tests.rlmm.quorum.local_network import leader_of as leader_of

CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0Mg"
TOPIC_ID = bytes(range(16))
SECRET = "s3cret" * 6
HOST = "127.0.0.1"
BRISK = RaftSettings(
    election_timeout_ms=200,
    fetch_timeout_ms=600,
    election_backoff_max_ms=100,
    request_timeout_ms=600,
    retry_backoff_ms=5,
    pre_vote_retry_ms=50,
    fetch_wait_max_ms=100,
    shutdown_timeout_ms=100,
)
STEADY = RaftSettings(election_timeout_ms=200, shutdown_timeout_ms=100)
"""For clients in processes of their own, which may keep the machine from the nodes for a while: a
first leader soon, and none that is given up for that.
"""


@dataclass(frozen=True)
class Wire:
    """How the nodes of a test speak to each other."""

    authorisation: Authorisation = field(default_factory=lambda: Authorisation(secret=SECRET))
    credentials: SaslCredentials | None = field(
        default_factory=lambda: SaslCredentials(SCRAM, PEER_USER, SECRET)
    )
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    cluster_id: str = CLUSTER_ID
    listener_limits: ListenerLimits = field(default_factory=ListenerLimits)
    raft: RaftSettings = BRISK

    def peers(self) -> WirePeers:
        """A client side of its own, as a node has it."""
        return WirePeers(
            cluster_id=self.cluster_id,
            topic_id=TOPIC_ID,
            security=PeerSecurity(self.client_tls, self.credentials),
            monotonic=ambient.monotonic,
            new_nonce=ambient.new_nonce,
            limits=PeerLimits(reconnect_backoff_max_ms=50),
        )


class WireReplica:
    """One node: its disk stays, log and listener come and go."""

    def __init__(
        self,
        node_id: int,
        ports: dict[int, int],
        wire: Wire,
        *,
        disk: Disk | None = None,
        metadata: Path = METADATA,
        port: int | None = None,
        directory: Uuid | None = None,
        starts: int = 0,
        bootstrap: tuple[int, ...] = (),
    ) -> None:
        """`port`, `directory`, `starts`: it is no voter of `ports`, or a copy of one. `bootstrap`:
        it joins, and knows these nodes of `ports` and no voters.
        """
        self.node_id = node_id
        self.ports = ports
        self.port = ports[node_id] if port is None else port
        self.directory_id = directory or directory_id(node_id)
        self.starts = starts
        self.wire = wire
        self.disk = CrashDisk() if disk is None else disk
        self.failures: list[str] = []
        self.advertises = False
        self._bootstrap = bootstrap
        self._metadata = metadata
        self._log: QuorumLog | None = None
        self._listener: QuorumListener | None = None

    @property
    def log(self) -> QuorumLog:
        assert self._log is not None, "not running"
        return self._log

    @property
    def listener(self) -> QuorumListener:
        assert self._listener is not None, "not running"
        return self._listener

    @property
    def running(self) -> bool:
        return self._log is not None

    async def start(self, *, limits: LogLimits | None = None) -> QuorumLog:
        self.starts += 1
        fraction = (self.node_id * 0.37) % 1
        around = Ambient(ambient.now_ms, ambient.monotonic, ambient.sleep, lambda: fraction)
        voters = tuple(
            Voter(node_id, directory_id(node_id), (Endpoint("QUORUM", HOST, port),))
            for node_id, port in sorted(self.ports.items())
        )
        config = QuorumConfig(
            self.wire.cluster_id,
            ReplicaKey(self.node_id, str(self.directory_id)),
            voter_set(() if self._bootstrap else voters),
            bootstrap=tuple(
                (node_id, HOST, self.ports[node_id])
                for node_id in self._bootstrap or tuple(self.ports)
            ),
            settings=self.wire.raft,
            incarnation=self.starts,
            endpoints=(Endpoint("QUORUM", HOST, self.port),) if self.advertises else (),
        )
        self._log = await QuorumLog.open(
            Place(self._metadata, self.disk),
            config,
            self.wire.peers(),
            view_flushed_end=0,
            ambient=around,
            on_failure=self.failures.append,
            limits=limits,
        )
        self._listener = QuorumListener(
            DriverServer(self._log, now_ms=ambient.now_ms),
            ServedLog(self.wire.cluster_id, self.node_id, TOPIC_ID),
            ListenerAmbient(
                ambient.sleep,
                lambda: ambient.now_ms() - int(ambient.monotonic() * 1000),
                ambient.new_nonce,
            ),
            authorisation=self.wire.authorisation,
            tls=self.wire.server_tls,
            limits=self.wire.listener_limits,
        )
        await self._listener.start(HOST, self.port)
        return self._log

    def power_cut(self, survivors: Survivors) -> None:
        assert isinstance(self.disk, CrashDisk), "only a disk in memory forgets"
        self.disk.power_cut(survivors, survivors)

    async def stop(self) -> None:
        log, self._log = self.log, None
        await log.close()
        await self.listener.close()


@asynccontextmanager
async def replicas(
    wire: Wire | None = None, *, count: int = 3, home: Path | None = None
) -> AsyncIterator[list[WireReplica]]:
    """Running ones, with node ids from 1; on disks in memory, or on real ones below `home`."""
    ports = dict(enumerate(free_ports(count), start=1))
    made = []
    for node_id in ports:
        replica = WireReplica(node_id, ports, wire or Wire())
        if home is not None:
            directory = home / f"node-{node_id}"
            directory.mkdir()
            replica = WireReplica(node_id, ports, wire or Wire(), disk=OsDisk(), metadata=directory)
        made.append(replica)
    try:
        await asyncio.gather(*(replica.start() for replica in made))
        yield made
    finally:
        for replica in made:
            if replica.running:
                await replica.stop()
    assert [replica.failures for replica in made] == [[] for _ in made]
