"""The metadata topic is read by leaders that no broker knows to be deposed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast
from unittest.mock import AsyncMock, patch
from uuid import UUID

import pytest
from kio.schema.describe_configs.v3 import DescribeConfigsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata import v10
from kio.schema.metadata.v8 import MetadataRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from kafka_client.broker_requests import ClusterDescription
from kafka_formats.errors import RetryLater
from rlm.leadership.broker_view import BrokerView
from rlm.migration.broker_side import LIVE_DEADLINE_S, BrokerSide
from rlm.migration.shadow_topic import KafkaSession, KafkaTopic
from rlm.migration.topic_checks import TOPIC
from tests.kafka_client.fake_broker import NO_THROTTLE, Reply, fake_broker
from tests.rlm.leadership.test_broker_view import NODE_ID, configs, metadata, view_of
from tests.rlm.virtual_time import run_virtually

OTHER_ID = NODE_ID + 1
NEW_ID = NODE_ID + 2
TOPIC_ID = UUID(int=7)
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@dataclass
class Told:
    """What a broker tells of the topic: (leader, leader epoch) of each partition."""

    leaders: tuple[tuple[int, int], ...] = ((NODE_ID, 5), (OTHER_ID, 2))
    brokers: tuple[int, ...] = (NODE_ID, OTHER_ID)
    topic_id: UUID = TOPIC_ID
    error: ErrorCode = ErrorCode.none


def answer(told: Told, ports: dict[int, int]) -> Callable[[v10.MetadataRequest], Reply]:
    def of_topic(_: v10.MetadataRequest) -> Reply:
        partitions = tuple(
            v10.response.MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(number),
                leader_id=BrokerId(leader),
                leader_epoch=i32(epoch),
            )
            for number, (leader, epoch) in enumerate(told.leaders)
        )
        topic = v10.response.MetadataResponseTopic(
            error_code=told.error,
            name=TopicName(TOPIC),
            topic_id=told.topic_id,
            partitions=partitions,
        )
        brokers = tuple(
            v10.response.MetadataResponseBroker(
                node_id=BrokerId(each), host="127.0.0.1", port=i32(ports.get(each, 1))
            )
            for each in told.brokers
        )
        return v10.MetadataResponse(throttle_time=NO_THROTTLE, brokers=brokers, topics=(topic,))

    return of_topic


@asynccontextmanager
async def side(own: Told, other: Told) -> AsyncIterator[BrokerSide]:
    """Two brokers, of which the first is the node's own."""
    ports: dict[int, int] = {}
    script = {
        MetadataRequest: lambda _: metadata(),
        DescribeConfigsRequest: lambda request: configs(request, dict(SETTINGS)),
    }
    async with (
        fake_broker(script | {v10.MetadataRequest: answer(own, ports)}) as first,
        fake_broker(script | {v10.MetadataRequest: answer(other, ports)}) as second,
    ):
        ports |= {NODE_ID: first.port, OTHER_ID: second.port}
        view = view_of(first)
        ours = BrokerSide(view)
        ours.view.port_of_other = second.port  # type: ignore[attr-defined]
        yield ours
        await view.close()


@pytest.mark.parametrize(
    "other",
    [
        Told(),
        Told(leaders=((OTHER_ID, 4), (OTHER_ID, 2))),  # it has not heard of the newer leader yet
        Told(brokers=(OTHER_ID,)),
    ],
)
async def test_the_topic_is_read_where_nobody_knows_newer_leaders(other: Told) -> None:
    async with side(Told(), other) as ours:
        opened = await ours.open_topic()
    assert tuple(opened.partitions) == (0, 1)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        # A leader that was cut off from its controller has an older end, and says it is the end.
        (Told(leaders=((OTHER_ID, 6), (OTHER_ID, 2))), "knows leader 4 of partition 0 in epoch 6"),
        (Told(leaders=((NODE_ID, 5), (NODE_ID, 7))), "knows leader 3 of partition 1 in epoch 7"),
        (Told(leaders=((NODE_ID, 5), (OTHER_ID, 2), (NODE_ID, 0))), "it has 3 partitions"),
        (Told(topic_id=UUID(int=8)), "there its id is"),
        (Told(brokers=(NODE_ID, OTHER_ID, NEW_ID)), "knows the broker 5"),
        (Told(error=ErrorCode.unknown_topic_or_partition), "unknown_topic_or_partition"),
    ],
)
async def test_an_old_view_of_the_topic_is_not_imported(other: Told, why: str) -> None:
    async with side(Told(), other) as ours:
        with pytest.raises(RetryLater, match=why):
            await ours.open_topic()


async def test_a_topic_made_anew_while_it_is_read_is_not_taken_for_the_same() -> None:
    """Its partitions that were not read yet would be imported as if they had nothing."""
    told = Told(leaders=((NODE_ID, 5), (NODE_ID, 5)))
    async with side(told, Told(brokers=(NODE_ID, OTHER_ID), leaders=told.leaders)) as ours:
        opened = await ours.open_topic()
        told.topic_id = UUID(int=8)
        with pytest.raises(RetryLater, match="recreated or widened"):
            await opened.read(0, lambda *_: None)


@dataclass
class _Producer:
    closed: bool = False

    async def close(self) -> None:
        self.closed = True


async def opened_shadow(view: BrokerView, producer: _Producer) -> KafkaSession:
    async def sleep(_seconds: float) -> None:
        pass

    fenced = AsyncMock(return_value=producer)
    with patch("rlm.migration.shadow_topic.TransactionalProducer.open", fenced):
        return await KafkaTopic(view, "shadow", sleep, lambda: 0).open()


async def test_the_shadow_is_not_read_from_a_leader_that_a_broker_knows_to_be_deposed() -> None:
    """Its older end would be taken for lost records, which closes the way back for good."""
    newer, producer = Told(leaders=((OTHER_ID, 6), (OTHER_ID, 2))), _Producer()
    async with side(Told(), newer) as ours:
        with pytest.raises(RetryLater, match="knows leader 4 of partition 0 in epoch 6"):
            await opened_shadow(ours.view, producer)
    assert producer.closed


async def test_the_shadow_goes_on_without_a_broker_that_does_not_answer() -> None:
    both = Told(brokers=(NODE_ID, OTHER_ID, NEW_ID))
    async with side(both, both) as ours:
        session = await opened_shadow(ours.view, _Producer())
    assert session.leaders.leaders == {0: NODE_ID, 1: OTHER_ID}


async def test_the_shadow_begins_with_the_node_s_own_broker() -> None:
    """One that counts as living and answers nothing would else keep every node from writing, and
    letting another node lead would not help.
    """
    both = Told(brokers=(NODE_ID - 1, NODE_ID, OTHER_ID))
    async with side(both, both) as ours:
        session = await opened_shadow(ours.view, _Producer())
    assert session.leaders.leaders == {0: NODE_ID, 1: OTHER_ID}


async def test_every_live_broker_has_to_answer() -> None:
    both = Told(brokers=(NODE_ID, OTHER_ID, NEW_ID))
    async with side(both, both) as ours:
        with pytest.raises(RetryLater, match=r"broker 5 at 127\.0\.0\.1:1"):
            await ours.open_topic()


async def test_a_broker_that_was_known_and_answers_has_the_last_word() -> None:
    """The node's broker calls it dead: it may be the one that is cut off."""
    newer = Told(leaders=((OTHER_ID, 6), (OTHER_ID, 2)))
    async with side(Told(brokers=(NODE_ID,)), newer) as ours:
        await ours.open_topic()
        ours._known[OTHER_ID] = ("127.0.0.1", ours.view.port_of_other)  # type: ignore[attr-defined]
        with pytest.raises(RetryLater, match=f"broker {OTHER_ID} answers, but is not live"):
            await ours.open_topic()
        ours._known[OTHER_ID] = ("127.0.0.1", 1)
        await ours.open_topic()  # it does not answer


class Silent:
    """A view of a broker that stands still."""

    def __init__(self) -> None:
        self.asked = 0
        self.goes_on = asyncio.Event()

    async def ask(self, _question: object) -> ClusterDescription:
        self.asked += 1
        await self.goes_on.wait()
        return ClusterDescription("kafka-1", {1: ("host", self.asked)})


def test_a_silent_broker_is_not_waited_for_long_and_no_late_answer_counts() -> None:
    async def main() -> None:
        view = Silent()
        ours = BrokerSide(cast("BrokerView", view))
        loop = asyncio.get_running_loop()
        for _ in range(3):
            begun = loop.time()
            with pytest.raises(RetryLater, match="has not answered for 2 s"):
                await ours.live()
            assert loop.time() - begun <= 2 * LIVE_DEADLINE_S
        assert view.asked == 1, "questions do not pile up"
        view.goes_on.set()
        assert await ours.live() == [1]
        assert view.asked == 2

    run_virtually(main)
