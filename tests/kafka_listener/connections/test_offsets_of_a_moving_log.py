"""ListOffsets while local retention moves the start of the leader's disk."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.client import Client
from kafka_listener.connections.offset_answers import OffsetAnswers
from kafka_listener.connections.shares import Turns
from kafka_listener.protocol import offsets
from kafka_listener.protocol.codec import ClientRequest, Head
from kafka_listener.reading.read_port import BrokerLogEnds, FoundOffset, TierEnds
from tests.kafka_listener.connections.known_rights import KnownRights

TIP = TopicIdPartition("orders", Uuid(bytes(range(16))), 0)
TIME_MS = 25
"""The time of the record at offset 25; every record's time is its offset."""
LEADER_NOT_AVAILABLE = 5


@dataclass
class Moving:
    """A tier that has the offsets 0 to 39, if it `is_tiered`, and a leader that has those from
    `start` on. `moves`: local retention has moved that start by the time the leader answers the
    client. `is_heard`: the leader reported its ends before.
    """

    start: int = 0
    moves: int = 30
    is_tiered: bool = True
    is_heard: bool = True
    reported: BrokerLogEnds | None = None

    async def resolve(self, _: Client, __: object) -> dict[Any, TopicIdPartition]:
        return {("orders", 0): TIP}

    def doubt(self, _: Client, tip: TopicIdPartition) -> None:
        assert tip == TIP
        self.reported = None

    async def of(self, _: Client, tips: list[TopicIdPartition]) -> dict[Any, Any]:
        if not self.is_heard:
            return dict.fromkeys(tips)
        self.reported = self.reported or BrokerLogEnds(0, self.start, 60, 60, self.start)
        return dict.fromkeys(tips, self.reported)

    def ends(self, _: TopicIdPartition) -> TierEnds | None:
        return TierEnds(0, 40, 0) if self.is_tiered else None

    async def list_offsets(
        self, _: TopicIdPartition, timestamp: int, broker: BrokerLogEnds | None
    ) -> FoundOffset | None:
        if not self.is_tiered or (broker is not None and broker.local_log_start_offset <= 0):
            return None
        if timestamp == offsets.EARLIEST:
            return FoundOffset(-1, 0, 0)
        return FoundOffset(timestamp, timestamp, 0) if 0 <= timestamp < 40 else None

    async def exchange(self, _: Head, __: str, body: Any) -> Any:
        self.start += self.moves
        self.moves = 0
        (topic,) = body["topics"]
        (partition,) = topic["partitions"]
        timestamp = partition["timestamp"]
        offset = self.start if timestamp == offsets.EARLIEST else max(self.start, timestamp)
        answer = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": offset}
        return {"topics": [{"name": topic["name"], "partitions": [answer]}]}


async def asked(moving: Moving, timestamp: int) -> tuple[int, int]:
    told: list[str] = []
    counts = SimpleNamespace(not_available=told.append)
    answers = OffsetAnswers(
        cast(Any, moving), cast(Any, moving), cast(Any, counts), cast(Any, KnownRights()), Turns()
    )
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    topics = [{"name": "orders", "partitions": [partition]}]
    body = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    request = ClientRequest(Head(2, 7, 1), "a client", body)
    answer = await answers.list_offsets(cast(Client, moving), request)
    (one,) = answer["topics"][0]["partitions"]
    assert bool(told) == bool(one["error_code"]), "the log has the reason"
    return one["error_code"], one.get("offset", -1)


@pytest.mark.parametrize(("timestamp", "offset"), [(offsets.EARLIEST, 0), (TIME_MS, TIME_MS)])
async def test_what_local_retention_took_meanwhile_is_not_skipped(
    timestamp: int, offset: int
) -> None:
    """The leader had all of the log by its report, and deletes the records before its answer, whose
    offset is above what the tier still has.
    """
    moving = Moving()
    assert await asked(moving, timestamp) == (LEADER_NOT_AVAILABLE, -1)
    assert await asked(moving, timestamp) == (0, offset), "the client's next request is answered"


async def test_a_time_above_the_tier_is_not_searched_above_a_disk_that_moved() -> None:
    """What was copied since the tier was searched may be on the leader's disk no more."""
    moving = Moving(start=20, moves=30)
    assert await asked(moving, 45) == (LEADER_NOT_AVAILABLE, -1)
    assert await asked(moving, 55) == (0, 55)


async def test_a_leader_that_was_not_heard_before_may_have_moved() -> None:
    moving = Moving(moves=0, start=50, is_heard=False)
    assert await asked(moving, 45) == (LEADER_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("timestamp", [offsets.EARLIEST, TIME_MS])
async def test_a_disk_that_stays_answers(timestamp: int) -> None:
    assert await asked(Moving(moves=0), timestamp) == (0, max(timestamp, 0))


async def test_a_topic_that_is_not_tiered_is_the_leaders() -> None:
    assert await asked(Moving(is_tiered=False), offsets.EARLIEST) == (0, 30)
