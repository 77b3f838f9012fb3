"""ListOffsets where the leader's word is not to be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.client import Client
from kafka_listener.connections.offset_answers import OffsetAnswers
from kafka_listener.protocol import offsets
from kafka_listener.protocol.codec import ClientRequest, Head

TIP = TopicIdPartition("orders", Uuid(bytes(range(16))), 0)


class Stand:
    """A tier that has the partition, and a leader that answers `error` to questions for its ends,
    and a moment later its own log start to the client's.
    """

    def __init__(self, error: int) -> None:
        self.error = error
        self.known: dict[Any, TopicIdPartition] = {("orders", 0): TIP}

    async def resolve(self, _: Client, __: object) -> dict[Any, TopicIdPartition]:
        return self.known

    async def of(self, _: Client, __: object) -> dict[TopicIdPartition, int]:
        return dict.fromkeys(self.known.values(), self.error)

    async def exchange(self, _: Head, __: str, body: Any) -> Any:
        answer = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 1_500}
        topics = [{"name": each["name"], "partitions": [answer]} for each in body["topics"]]
        return {"topics": topics}


async def earliest(stand: Stand) -> tuple[int, int]:
    answers = OffsetAnswers(cast(Any, stand), cast(Any, stand), cast(Any, SimpleNamespace()))
    partition = {"partition_index": 0, "timestamp": offsets.EARLIEST, "current_leader_epoch": -1}
    body = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    request = ClientRequest(Head(2, 7, 1), "a client", body)
    answer = await answers.list_offsets(cast(Client, stand), request)
    (one,) = answer["topics"][0]["partitions"]
    return one["error_code"], one.get("offset", -1)


async def test_without_the_topics_id_the_leader_is_not_asked() -> None:
    stand = Stand(0)
    stand.known = {}
    assert await earliest(stand) == (5, -1)


@pytest.mark.parametrize("error", [78, 6, 3])
async def test_an_error_of_the_leader_is_not_asked_away(error: int) -> None:
    """Its own log start would skip the tier."""
    assert await earliest(Stand(error)) == (5, -1)


async def test_a_client_that_may_not_read_is_told_so_at_once() -> None:
    """A right that is granted meanwhile would let the leader answer."""
    assert await earliest(Stand(29)) == (29, -1)
