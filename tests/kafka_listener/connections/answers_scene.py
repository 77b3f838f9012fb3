"""A client's requests being answered; its twin at the broker answers as the test says."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from kafka_client.connection import Connection
from kafka_listener.connections.answers import Answers
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client
from kafka_listener.connections.fetching import Fetching
from kafka_listener.connections.logins import Logins
from kafka_listener.connections.offset_answers import OffsetAnswers
from kafka_listener.connections.read_counts import ReadCounts
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.protocol.apis import SERVED, Api, Versions
from kafka_listener.protocol.codec import Head, decode_response, encode_request, encode_response
from kafka_listener.virtual_nodes import Replica
from rlmm.wire.sasl_server import SaslServer
from rlmm.wire.schema import Values
from rlmm.wire.server_connection import ServerConnection

VERSIONS: Mapping[int, Versions] = {int(api): (each.low, each.high) for api, each in SERVED.items()}


@dataclass
class Twin:
    """`answer`: the body of each answer, or the error in its place."""

    answer: Values | Exception
    name: str = "broker-1:9092"
    lost: bool = False
    is_aborted: bool = False
    asked: int = 0
    api_versions: Mapping[int, Versions] = field(default_factory=lambda: VERSIONS)

    async def relay(self, frame: bytes, *, deadline_s: float) -> bytes:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        api_key, version = frame[4:6], frame[6:8]
        head = Head(int.from_bytes(api_key), int.from_bytes(version), int.from_bytes(frame[8:12]))
        return encode_response(head, self.answer)[4:]

    def abort(self) -> None:
        self.is_aborted = True


class AnswersScene:
    """Broker 1 is known, with the address of the twin."""

    def __init__(self, answer: Values | Exception) -> None:
        self.now = 0.0
        self.twin = Twin(answer)
        self.brokers = Brokers((), "", lambda: self.now, lambda: "nonce")
        self.brokers.known = {1: ("broker-1", 9092)}
        self.counts = ReadCounts(lambda: self.now)
        self.client = Client(
            "a client",
            SaslServer(None, lambda: "nonce", plain_allowed=False),
            connection=cast(ServerConnection, None),
            brokers=self.brokers,
            broker_id=None,
            _twin=cast(Connection, self.twin),
        )
        self.answers = Answers(
            LiveReplicas(Replica(100, "here", 19_092)),
            self.brokers,
            cast(Fetching, None),
            cast(OffsetAnswers, None),
            Logins(self.brokers, self.counts),
            TopicRights(lambda: self.now),
            self.counts,
            self._open_ports,
        )

    async def _open_ports(self) -> None: ...

    async def other_brokers_answer(self, _: object) -> bool:
        return True

    def begin(self, api: Api, version: int, body: Values) -> Awaitable[bytes]:
        frame = encode_request(Head(api, version, 1), "c", body)[4:]
        return self.answers.begin(self.client, frame)

    async def ask(self, api: Api, version: int, body: Values) -> dict[str, Any]:
        head = Head(api, version, 1)
        return decode_response(head, (await self.begin(api, version, body))[4:])
