"""A client's answers while its broker answers oddly or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from kafka_client.connection import AnswerTooLargeError, Connection
from kafka_formats.errors import RetryLater
from kafka_listener.connections.fetching import Fetching, Send, TierRecords
from kafka_listener.connections.last_metadata import LastMetadata
from kafka_listener.connections.shares import (
    LONG_ANSWERS_MAX,
    LONG_REQUESTS_BYTES_MAX,
    SLICE,
    Found,
    Item,
    Turns,
)
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import ClientRequest
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.reading.read_port import TierBatches
from kafka_listener.virtual_nodes import virtual_id
from rlm.data_plane.read_request import ClientEnd, Sent
from rlmm.wire.schema import Values
from rlmm.wire.server_connection import DisconnectError, ServerConnection
from tests.kafka_listener.connections.answers_scene import AnswersScene

TOO_LARGE = AnswerTooLargeError("an answer of 99999999 bytes is announced", source="broker-1:9092")


@pytest.mark.parametrize(
    ("asked", "topics"),
    [
        (None, []),
        ([{"name": "orders"}], [("orders", ErrorCode.LEADER_NOT_AVAILABLE)]),
    ],
)
async def test_metadata_too_large_to_read_is_asked_for_again(
    asked: Any, topics: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Without brokers clients take nothing of it: they keep what they know."""
    scene = AnswersScene(TOO_LARGE)
    for _ in range(3):
        body = await scene.ask(Api.METADATA, 12, {"topics": asked})
        assert body["brokers"] == []
        assert [(each["name"], each["error_code"]) for each in body["topics"]] == topics
    (line,) = caplog.messages
    assert "METADATA version 12" in line
    assert "99999999 bytes" in line
    assert scene.counts.refusals == 3


async def test_a_cluster_too_large_to_read_is_an_error_without_a_brokers_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = AnswersScene(TOO_LARGE)
    body = await scene.ask(Api.DESCRIBE_CLUSTER, 0, {})
    assert body["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9092" not in body["error_message"]
    assert len(caplog.messages) == 1


async def test_a_relayed_answer_too_large_to_read_ends_the_connection_with_a_line() -> None:
    scene = AnswersScene(TOO_LARGE)
    with pytest.raises(DisconnectError, match=r"OFFSET_FETCH version 8.*99999999 bytes"):
        await scene.begin(Api.OFFSET_FETCH, 8, {"groups": []})


async def test_versions_are_answered_although_the_brokers_own_cannot_be_read() -> None:
    scene = AnswersScene(TOO_LARGE)
    scene.brokers.versions = scene.twin.api_versions
    body = await scene.ask(Api.API_VERSIONS, 3, {})
    assert body["error_code"] == ErrorCode.NONE
    assert Api.FETCH in {each["api_key"] for each in body["api_keys"]}


class WatchedTurns(Turns):
    """`apart` of so many partitions was asked for, and slices of so many topics had turns."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: list[int] = []
        self.slices: list[int] = []

    async def apart(self, partitions: int, work: Callable[[], Found]) -> Found:
        self.partitions.append(partitions)
        return await super().apart(partitions, work)

    async def in_slices(
        self,
        items: Sequence[Item],
        work: Callable[[Sequence[Item]], Awaitable[None]],
        weight: Callable[[Item], float] = lambda _: 1,
    ) -> None:
        async def watched(some: Sequence[Item]) -> None:
            self.slices.append(len(some))
            await work(some)

        await super().in_slices(items, watched, weight)


def metadata(topics: int, partitions: int) -> dict[str, Any]:
    """An answer of a broker."""
    one = {"error_code": 0, "leader_id": 1, "leader_epoch": 3, "replica_nodes": [1]}
    return {
        "brokers": [{"node_id": 1, "host": "broker-1", "port": 9092}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [
            {
                "error_code": 0,
                "name": f"topic-{number}",
                "topic_id": (number + 1).to_bytes(16, "big"),
                "is_internal": False,
                "partitions": [one | {"partition_index": each} for each in range(partitions)],
            }
            for number in range(topics)
        ],
    }


async def test_metadata_of_all_topics_is_read_rewritten_and_written_beside_the_loop() -> None:
    """The question is short, and the answer may be about 100,000 partitions."""
    scene = AnswersScene(metadata(200, 25))
    turns = scene.brokers.turns = WatchedTurns()
    body = await scene.ask(Api.METADATA, 12, {"topics": None})
    assert [len(each["partitions"]) for each in body["topics"]] == [25] * 200
    assert {one["leader_id"] for each in body["topics"] for one in each["partitions"]} == {
        virtual_id(100, 1)
    }
    long_works = [each for each in turns.partitions if each > SLICE]
    assert len(long_works) == 2, "the broker's answer is read, and the client's is written"
    assert all(each > 2_000 for each in long_works)
    assert len(turns.slices) > 3, "what is shared is learnt by the loop, a little at a time"
    assert scene.brokers.topics.id_of("topic-199") == (200).to_bytes(16, "big")


async def test_few_long_answers_of_brokers_are_in_memory_at_once() -> None:
    """When a replica starts again, all its clients ask for all topics at once: decoded, each answer
    takes ten times the memory of its bytes.
    """
    scene = AnswersScene(metadata(40, 25))
    decoded, most = 0, 0

    class Watched(LastMetadata):
        def take(self, body: Values) -> None:
            nonlocal decoded, most
            decoded += not body["topics"]  # once an answer, before its topics
            most = max(most, decoded)
            super().take(body)

    scene.answers = replace(scene.answers, last=Watched())

    async def ask() -> None:
        nonlocal decoded
        answer = await scene.ask(Api.METADATA, 12, {"topics": None})
        assert len(answer["topics"]) == 40
        decoded -= 1

    await asyncio.gather(*(ask() for _ in range(20)))
    assert most == LONG_ANSWERS_MAX


async def test_few_long_requests_are_in_memory_at_once_and_none_waits_long_for_records() -> None:
    """One of 1 MiB takes 36 MiB with its answer, and its client chooses how long a broker waits."""
    scene = AnswersScene(RetryLater("away"))
    waits: list[int] = []
    goes_on = asyncio.Event()

    class Waiting:
        async def answer(self, _client: object, request: ClientRequest, _send: object) -> bytes:
            waits.append(request.body["max_wait"])
            await goes_on.wait()
            return b""

    scene.answers = replace(scene.answers, fetching=cast(Fetching, Waiting()))
    partition = {"partition": 0, "fetch_offset": 9, "partition_max_bytes": 1}

    def fetch(partitions: int) -> asyncio.Task[bytes]:
        topics = [{"topic": "orders", "partitions": [partition] * partitions}]
        body = {"topics": topics, "max_wait": 600_000, "min_bytes": 1, "max_bytes": 1}
        return asyncio.ensure_future(scene.begin(Api.FETCH, 4, body))

    asked = [fetch(10_000) for _ in range(60)]
    while len(waits) < LONG_REQUESTS_BYTES_MAX // 161_000:
        await asyncio.sleep(0.01)
    await fetch_begins(fetch(1), waits)
    assert len(waits) == LONG_REQUESTS_BYTES_MAX // 161_000 + 1
    assert set(waits) == {5_000, 600_000}
    goes_on.set()
    await asyncio.gather(*asked)
    assert len(waits) == 61
    assert scene.answers.room.held_bytes == 0


async def fetch_begins(_asked: asyncio.Task[bytes], waits: list[int]) -> None:
    before = len(waits)
    async with asyncio.timeout(10):
        while len(waits) == before:
            await asyncio.sleep(0.01)


async def test_short_metadata_waits_for_no_turn() -> None:
    scene = AnswersScene(metadata(2, 3))
    turns = scene.brokers.turns = WatchedTurns()
    await scene.ask(Api.METADATA, 12, {"topics": None})
    assert max(turns.partitions) <= SLICE
    assert turns.slices == [2]


async def test_the_nodes_own_questions_are_read_beside_the_loop_too() -> None:
    scene = AnswersScene(metadata(1, 5_000))
    turns = scene.brokers.turns = WatchedTurns()
    await scene.brokers.learn_topics(cast(Connection, scene.twin), ["topic-0"], ())
    assert max(turns.partitions) > 2_000


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [(Api.HEARTBEAT, 4, {}), (Api.METADATA, 12, {"topics": None}), (Api.DESCRIBE_CLUSTER, 0, {})],
)
async def test_a_connection_that_ends_for_want_of_its_broker_is_counted_and_told(
    api: Api, version: int, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scene = AnswersScene(RetryLater("broker-1:9092 closed the connection"))
    cast(Any, scene.brokers).answers = scene.other_brokers_answer
    for _ in range(3):
        with pytest.raises(RetryLater):
            await scene.begin(api, version, body)
    assert scene.counts.broken_off == {"broker": 3, "not_taken": 0, "tier": 0}
    (line,) = caplog.messages
    assert line == (
        f"the connection of a client ends: its broker did not answer {api.name} version {version} "
        "(broker-1:9092 closed the connection)"
    )


@dataclass
class Taking:
    """A client's connection, and batches of the tier of which `sent` went to it."""

    sent: Sent | Exception
    is_encrypted: bool = False

    async def write_part(self, _: bytes) -> None: ...

    @contextmanager
    def lend(self) -> Iterator[None]:
        yield

    async def send_to(self, *_: object) -> Sent:
        if isinstance(self.sent, Exception):
            raise self.sent
        return self.sent

    async def read(self) -> bytes:
        await self.send_to()
        return b""

    async def answer(self, _client: object, _request: object, send: Send) -> bytes:
        """A Fetch's."""
        await send((b"head", TierRecords(100, cast(TierBatches, self))), None)
        return b""


@pytest.mark.parametrize(
    ("taking", "reason", "text"),
    [
        (Taking(Sent(ClientEnd.TOOK_ALL, 100)), None, ""),
        (Taking(Sent(ClientEnd.GONE, 40)), None, ""),
        (Taking(Sent(ClientEnd.LATE, 40)), "not_taken", "the client took 40 of 100 bytes"),
        (Taking(Sent(ClientEnd.LATE, 100, 2)), "not_taken", "only a part of the next one"),
        (Taking(RetryLater("the worker died")), "tier", "(the worker died)"),
        (Taking(RetryLater("the worker died"), is_encrypted=True), "tier", "(the worker died)"),
    ],
)
async def test_an_answer_of_the_tier_that_breaks_off_is_counted_and_told(
    taking: Taking, reason: str | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = AnswersScene({})
    scene.client.connection = cast(ServerConnection, taking)
    scene.answers = replace(scene.answers, fetching=cast(Fetching, taking))
    asked = scene.begin(Api.FETCH, 11, {"topics": []})
    if taking.sent == Sent(ClientEnd.TOOK_ALL, 100):
        assert await asked == b""
    else:
        with pytest.raises(RetryLater):
            await asked
    assert sum(scene.counts.broken_off.values()) == (reason is not None)
    if reason is None:
        assert caplog.messages == []
    else:
        assert scene.counts.broken_off[reason] == 1
        assert text in caplog.text
