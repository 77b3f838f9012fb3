"""One node of a quorum as a process of its own: log, view, manager, listener; clients by lines.

`python -m tests.linearizability.node_process CONFIG` with a JSON object (`NodeConfig`). A client
connects to `client_port` and sends one JSON object a line: `{"do": "read", "topic": T}`,
`{"do": "set", "topic": T, "value": V, "replaces": O}`, `{"do": "describe"}`,
`{"do": "lost", "acknowledged": [[offset, topic, value, replaces], ...]}`. One line answers: an
object, or `{"error": kind, "message": why}`. SIGTERM ends the process in order.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from kafka_client.sasl import SaslCredentials
from kafka_formats.errors import Conflict, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.quorum.server import DriverServer
from rlmm.raft.messages import ReplicaKey
from rlmm.raft.timers import RaftSettings
from rlmm.records.control_records import TopicPolicyChange
from rlmm.records.records import encode
from rlmm.segment import Incarnation
from rlmm.view.view import View
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.listener import QuorumListener
from rlmm.wire.peer_connection import PeerSecurity
from rlmm.wire.peers import PeerLimits, WirePeers
from rlmm.wire.sasl_server import PEER_USER, SCRAM
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from strandline.node import ambient
from strandline.node.event_loop import leave_out_of_collections, node_runner
from strandline.settings.settings import MetadataSettings

HOST = "127.0.0.1"
CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0Mg"
TOPIC_ID = bytes(range(16))
SECRET = "s3cret" * 6
CALL_DEADLINE_S = 1.0
LINE_BYTES_MAX = 16 << 20
RECORDS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """`ports` are where nodes listen, `roads` where this node finds them: a proxy, for one.

    `raft` are the RaftSettings that differ from Kafka's defaults. Without `applies` there is the
    log alone: no view, no manager.
    """

    node_id: int
    home: str
    client_port: int
    ports: Mapping[int, int]
    roads: Mapping[int, int]
    raft: Mapping[str, int] = field(default_factory=dict)
    applies: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        for name in ("ports", "roads"):
            values[name] = {int(node_id): port for node_id, port in values[name].items()}
        return cls(**values)


class RoadPeers(WirePeers):
    """Goes to other nodes by the given roads, whatever the log says where they listen."""

    def __init__(self, roads: Mapping[int, int]) -> None:
        super().__init__(
            cluster_id=CLUSTER_ID,
            topic_id=TOPIC_ID,
            security=PeerSecurity(None, SaslCredentials(SCRAM, PEER_USER, SECRET)),
            monotonic=ambient.monotonic,
            new_nonce=ambient.new_nonce,
            limits=PeerLimits(reconnect_backoff_max_ms=100),
        )
        self._roads = roads

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        super().set_addresses(
            {
                node_id: (HOST, self._roads[node_id])
                for node_id in addresses
                if node_id in self._roads
            }
        )


def directory_id(node_id: int) -> Uuid:
    return Uuid(b"directory-%06d" % node_id)


def quorum_config(config: NodeConfig) -> QuorumConfig:
    voters = tuple(
        Voter(node_id, directory_id(node_id), (Endpoint("QUORUM", HOST, port),))
        for node_id, port in sorted(config.ports.items())
    )
    return QuorumConfig(
        CLUSTER_ID,
        ReplicaKey(config.node_id, str(directory_id(config.node_id))),
        voter_set(voters),
        bootstrap=tuple((node_id, HOST, port) for node_id, port in config.ports.items()),
        settings=RaftSettings(**config.raft),
    )


@asynccontextmanager
async def running_log(config: NodeConfig, view_flushed_end: int) -> AsyncIterator[QuorumLog]:
    log = await QuorumLog.open(
        Place(Path(config.home) / "metadata"),
        quorum_config(config),
        RoadPeers(config.roads),
        view_flushed_end=view_flushed_end,
        ambient=Ambient(ambient.now_ms, ambient.monotonic, ambient.sleep, ambient.random_fraction),
        on_failure=failed,
    )
    listener = QuorumListener(
        DriverServer(log, now_ms=ambient.now_ms),
        ServedLog(CLUSTER_ID, config.node_id, TOPIC_ID),
        ListenerAmbient(
            ambient.sleep,
            lambda: ambient.now_ms() - int(ambient.monotonic() * 1000),
            ambient.new_nonce,
        ),
        authorisation=Authorisation(secret=SECRET),
    )
    await listener.start(HOST, config.ports[config.node_id])
    try:
        yield log
    finally:
        await log.close()
        await listener.close()


def failed(message: str) -> None:
    raise SystemExit(message)


class ClientDoor:
    """Answers lines."""

    def __init__(self, log: QuorumLog, manager: RemoteLogMetadataManager | None) -> None:
        self._log = log
        self._manager = manager

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # the client is gone
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if asked["do"] == "describe":
                return self._describe()
            if asked["do"] == "lost":
                return {"lost": await self._lost(asked["acknowledged"])}
            assert self._manager is not None, "this node does not apply"
            if asked["do"] == "read":
                end = await self._log.barrier(deadline_s=CALL_DEADLINE_S)
                await self._manager.wait_for_offset(end - 1, deadline_s=CALL_DEADLINE_S)
                policy = self._manager.topic_policy(asked["topic"])
                return {"value": policy.retention_ms, "version": policy.offset}
            change = policy_change(asked["topic"], asked["value"], asked["replaces"])
            try:
                offset = await self._manager.set_topic_policy(change, deadline_s=CALL_DEADLINE_S)
            except Conflict:
                return {"refused": True}
            return {"version": offset}
        except StrandlineError as error:
            return {"error": type(error).__name__, "message": str(error)}

    def _describe(self) -> dict[str, Any]:
        known = self._log.describe()
        manager = self._manager
        return {
            "leader_id": known.leader_id,
            "epoch": known.leader_epoch,
            "high_watermark": known.high_watermark,
            "log_end_offset": known.log_end_offset,
            "established": self._log.driver.core.established,
            "applied": None if manager is None else manager.applied_offset,
            "digest": None if manager is None else manager.digest().hex(),
        }

    async def _lost(self, acknowledged: list[list[Any]]) -> list[list[Any]]:
        start = self._log.describe().log_start_offset
        records = await self._log.read(start, limit=RECORDS_MAX)
        values = {record.offset: record.value for record in records}
        return [
            each
            for each in acknowledged
            if values.get(each[0]) != encode(policy_change(each[1], each[2], each[3])).value
        ]


def policy_change(topic: str, value: int, replaces: int) -> TopicPolicyChange:
    return TopicPolicyChange(topic, TopicPolicy(retention_ms=value), replaces)


async def serve(config: NodeConfig) -> None:
    """Until SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    if not config.applies:
        async with running_log(config, 0) as log:
            await _door(config, ClientDoor(log, None), ended)
        return
    settings = MetadataSettings()
    limits = MetadataLimits(
        view_flush_records=settings.view_flush_records, snapshot_records=settings.snapshot_records
    )
    view = View.open(Path(config.home) / "view")
    try:
        async with running_log(config, view.flushed_offset + 1) as log:
            manager = await RemoteLogMetadataManager.start(
                log,
                view,
                incarnation=Incarnation(config.node_id, directory_id(config.node_id), 1),
                now_ms=ambient.now_ms,
                limits=limits,
                on_failure=failed,
            )
            try:
                await _door(config, ClientDoor(log, manager), ended)
            finally:
                await manager.close()
    finally:
        view.close()


async def _door(config: NodeConfig, door: ClientDoor, ended: asyncio.Event) -> None:
    leave_out_of_collections()  # as `strandline node` does
    server = await asyncio.start_server(door.serve, HOST, config.client_port, limit=LINE_BYTES_MAX)
    await ended.wait()
    server.close()


def main() -> None:
    with node_runner() as runner:
        runner.run(serve(NodeConfig.from_json(sys.argv[1])))


if __name__ == "__main__":
    main()
