"""ListOffsets where the leader's word is not to be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_formats.errors import InvalidRequest, NotFound, Refused, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.access.rights import NO_RIGHTS, RightsOrError
from kafka_listener.connections.client import Client
from kafka_listener.connections.offset_answers import OffsetAnswers
from kafka_listener.connections.shares import Turns
from kafka_listener.protocol import offsets
from kafka_listener.protocol.codec import ClientRequest, Head
from kafka_listener.reading.read_port import TierEnds
from tests.kafka_listener.connections.known_rights import KnownRights

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

    async def of(self, _: Client, __: object) -> dict[TopicIdPartition, int | None]:
        return dict.fromkeys(self.known.values(), self.error or None)

    async def exchange(self, _: Head, __: str, body: Any) -> Any:
        answer = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 1_500}
        topics = [{"name": each["name"], "partitions": [answer]} for each in body["topics"]]
        return {"topics": topics}


def answers_of(stand: Stand, rights: KnownRights, told: list[str] | None = None) -> OffsetAnswers:
    lines = [] if told is None else told
    parts = (stand, stand, SimpleNamespace(not_available=lines.append), rights, Turns())
    return OffsetAnswers(*(cast(Any, each) for each in parts))


async def earliest(
    stand: Stand, rights: KnownRights | None = None, told: list[str] | None = None
) -> tuple[int, int]:
    told = [] if told is None else told
    answers = answers_of(stand, rights or KnownRights(), told)
    partition = {"partition_index": 0, "timestamp": offsets.EARLIEST, "current_leader_epoch": -1}
    body = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    request = ClientRequest(Head(2, 7, 1), "a client", body)
    answer = await answers.list_offsets(cast(Client, stand), request)
    (one,) = answer["topics"][0]["partitions"]
    assert bool(told) == (one["error_code"] == 5), "whoever waits is counted and logged"
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


@pytest.mark.parametrize(("told", "error"), [(NO_RIGHTS, 29), (None, 5), (3, 5)])
async def test_without_the_right_nobody_is_asked(told: RightsOrError | None, error: int) -> None:
    """The leader may give it a moment later, and knows nothing below its own disk."""
    assert await earliest(Stand(0), KnownRights({"orders": told})) == (error, -1)


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("a batch decompresses to too much", field="copier.batch_bytes_max"),
        Refused("this node does not have the store `cold`"),
        NotFound("the index is not there"),
    ],
)
async def test_a_search_of_the_tier_that_fails_is_asked_for_again_and_logged(
    error: StrandlineError,
) -> None:
    """The connection does not end, nor does the leader answer from above the tier."""

    class Tier(Stand):
        async def list_offsets(self, *_: object) -> None:
            raise error

        def ends(self, _: object) -> TierEnds:
            return TierEnds(0, 40, 0)

    told: list[str] = []
    assert await earliest(Tier(0), told=told) == (5, -1)
    assert told == [str(error)]


async def test_epochs_are_refused_topic_by_topic() -> None:
    rights = KnownRights({"salaries": NO_RIGHTS})
    topics = [
        {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 3}]}
        for name in ("salaries", "orders")
    ]
    asked: list[Any] = []

    class Leader(Stand):
        async def exchange(self, _: Head, __: str, body: Any) -> Any:
            asked.extend(topic["topic"] for topic in body["topics"])
            return {"topics": []}

    stand = Leader(78)
    answer = await answers_of(stand, rights).epoch_ends(
        cast(Client, stand), ClientRequest(Head(23, 4, 1), "a client", {"topics": topics})
    )
    assert asked == ["orders"]
    assert answer["topics"] == [
        {"topic": "salaries", "partitions": [{"partition": 0, "error_code": 29}]}
    ]
