"""A Fetch being answered: a tier in memory, a leader's given word, a broker that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.access.rates import TierRates
from kafka_listener.connections.client import Client
from kafka_listener.connections.fetching import Fetching, TierRecords
from kafka_listener.connections.log_ends import LogEnds
from kafka_listener.connections.read_counts import ReadCounts
from kafka_listener.connections.shares import FIRST_BYTES, AnswerRoom, Turns
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.protocol.codec import (
    Head,
    Pieces,
    decode_request,
    decode_response,
    encode_request,
)
from kafka_listener.protocol.fetch import Ends, Wanted
from kafka_listener.reading.read_port import (
    BrokerLogEnds,
    TierEnds,
)
from kafka_listener.virtual_nodes import Replica
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import ClientEnd, Sent
from rlmm.wire.schema import Values
from tests.kafka_listener.connections.known_rights import KnownRights
from tests.kafka_listener.connections.tier_in_memory import Batch, TierInMemory

HEAD = Head(1, 11, 5)
BY_ID = Head(1, 13, 5)
"""Of a Fetch that names topics by their ids."""
ID, OTHER_ID = Uuid(bytes(range(16))), Uuid(bytes(range(16, 32)))
ENDS = BrokerLogEnds(4, 30, 90, 100)
HOLD_UNTIL_S = 0.75


class KnownEnds:
    """Every topic is known, but `unknown`; the leader's word on each partition is `told`."""

    def __init__(
        self, told: BrokerLogEnds | int | None = ENDS, monotonic: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.told = told
        self.monotonic = monotonic

    async def resolve(self, _client: object, wanted: Iterable[Wanted]) -> dict[Any, Any]:
        return self.resolved(wanted)

    def resolved(self, wanted: Iterable[Wanted]) -> dict[Any, TopicIdPartition]:
        return {
            (each.topic, each.partition): TopicIdPartition(
                "orders" if each.topic == ID else str(each.topic), ID, each.partition
            )
            for each in wanted
            if each.topic not in ("unknown", OTHER_ID)
        }

    async def of(self, _client: object, partitions: Iterable[Any]) -> dict[Any, Any]:
        return dict.fromkeys(partitions, self.told)

    def shown(self, _client: object, _tip: object, tier: TierEnds | None) -> Ends:
        return Ends(100, 90, -1 if tier is None else tier.log_start_offset)

    def saw(self, *_: object) -> None: ...

    def begins_above(self, _client: object, _tip: object, offset: int) -> bool:
        return isinstance(self.told, BrokerLogEnds) and offset < (self.told.log_start_offset or 0)

    def doubt(self, *_: object) -> None: ...

    def hold_until_s(self, *_: object) -> float:
        return HOLD_UNTIL_S


@dataclass
class AskedConnection:
    is_encrypted: bool = False
    leaves_requests: bool = True

    def leave_requests(self) -> bool:
        return self.leaves_requests


@dataclass
class AskedClient:
    """Its broker answers every partition with `records` or `error`; or the whole with `refused`, or
    with nothing while it throttles.
    """

    records: bytes = b"from the broker"
    error: int = 0
    refused: int = 0
    throttles: bool = False
    reachable: bool = True
    asked: list[Values] = field(default_factory=list)
    name: str = "a client"
    user: str = ""
    ends: dict[Any, Any] = field(default_factory=dict)
    sent_away: dict[Any, Any] = field(default_factory=dict)
    broker_id: int | None = 3
    window_bytes: int = FIRST_BYTES
    connection: AskedConnection = field(default_factory=AskedConnection)

    async def exchange(self, _head: Head, _id: object, body: Values, *, wait_s: float) -> Values:
        if not self.reachable:
            raise RetryLater("away")
        self.asked.append(body)
        if self.refused or self.throttles:
            return {"throttle_time": 900, "error_code": self.refused, "responses": []}
        data = {
            "error_code": self.error, "high_watermark": 100, "last_stable_offset": 90,
            "log_start_offset": 30, "records": self.records, "aborted_transactions": [],
        }  # fmt: skip
        return {
            "throttle_time": 7,
            "responses": [
                {
                    **{key: topic[key] for key in ("topic", "topic_id") if key in topic},
                    "partitions": [
                        {"partition_index": each["partition"], **data}
                        for each in topic["partitions"]
                    ],
                }
                for topic in body["topics"]
            ],
        }


class Scene:
    """The tier has the offsets 0 to 39 of every partition that is asked for, ten a batch."""

    def __init__(
        self,
        told: BrokerLogEnds | int | None = ENDS,
        *,
        gaps: bool = True,
        rates: TierRates | None = None,
        **broker: Any,
    ) -> None:
        self.now = 0.0
        self.tier = TierInMemory()
        batches = [Batch(10 * n, 10 * n + 9, b"batch %d." % n) for n in range(4)]
        self.tier.batches = {("orders", number): batches for number in range(3)}
        self.client = AskedClient(**broker)
        self.slept: list[float] = []
        self.further: FurtherRequests | None = None
        self.counts = ReadCounts(lambda: 0.0)
        self.replicas = LiveReplicas(Replica(100, "here", 19_092, "a"))
        self.rights = KnownRights()
        self.room = AnswerRoom(1 << 20)
        self.fetching = Fetching(
            self.tier,
            cast(LogEnds, KnownEnds(told, lambda: self.now)),
            self.counts,
            self._sleep,
            Turns(),
            self.room,
            bytes_max=1_000,
            lost_ranges_are_gaps=gaps,
            replicas=self.replicas,
            rights=cast(TopicRights, self.rights),
            rates=rates or TierRates(),
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def fetch(
        self,
        *offsets: int,
        topic: str | Uuid = "orders",
        first: int = 0,
        leader_epoch: int = -1,
        **more: Any,
    ) -> list[Values]:
        """The answers about partitions `first`, the one behind it, ..., with records as bytes.
        `leader_epoch` is the one that the client knows.
        """
        one = {"partition_max_bytes": 1_000, "current_leader_epoch": leader_epoch}
        partitions = [
            {"partition": number, "fetch_offset": offset} | one
            for number, offset in enumerate(offsets, first)
        ]
        by_id = isinstance(topic, Uuid)
        named, head = ({"topic_id": topic}, BY_ID) if by_id else ({"topic": topic}, HEAD)
        body = {
            "topics": [{**named, "partitions": partitions}],
            "max_wait": 500, "min_bytes": 1, "isolation_level": 1, **more,
        }  # fmt: skip
        decoded = decode_request(encode_request(head, "c", body)[4:])
        sent: list[bytes] = []

        async def send(pieces: Pieces, further: FurtherRequests | None) -> Sent | None:
            self.further = further
            for piece in pieces:
                if isinstance(piece, TierRecords):
                    sent.append(await piece.batches.read())
                else:
                    assert isinstance(piece, bytes)
                    sent.append(piece)
            return None if further is None else Sent(ClientEnd.TOOK_ALL, 9, 3, 4_000)

        request = replace(decoded, head=head)
        frame = await self.fetching.answer(cast(Client, self.client), request, send)
        self.answer = decode_response(head, (frame or b"".join(sent))[4:])
        return [each for topic in self.answer["responses"] for each in topic["partitions"]]
