"""The transactional producer against stock brokers of several versions, and stock consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import pytest

from kafka_client import transaction_requests
from kafka_client.connection import Connection
from kafka_client.topic_leaders import NO_LEADER, TopicLeaders, topic_leaders
from kafka_client.transactional_producer import TransactionalProducer
from kafka_formats.errors import Fenced, OutcomeUnknown, RetryLater
from kafka_formats.record_batch import Record, encode_batch
from rlm.leadership.broker_view import BrokerView
from tests.integration.test_broker_view import connection_settings, view_of
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import Isolation, consume_all, log_bounds

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

VERSIONS = ("3.9.2", "4.3.0", "4.4.0")


@pytest.fixture(scope="module", params=VERSIONS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    home = tmp_path_factory.mktemp("kafka") / "broker"
    with KafkaBroker(home, version=request.param) as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    name = f"topic-{uuid4()}"
    broker.create_topic(name, partitions=2, config={"retention.ms": "-1"})  # for old records
    for partition in range(2):  # its metadata names a leader before the broker leads
        log_bounds(broker.bootstrap, name, partition)
    return name


def records(*values: str) -> Sequence[Record]:
    return [
        Record(offset, 1_760_000_000_000 + offset, None, value.encode(), (("number", b"\1"),))
        for offset, value in enumerate(values)
    ]


def values(broker: KafkaBroker, topic: str, partition: int, isolation: Isolation) -> list[str]:
    found = consume_all(broker.bootstrap, topic, partition, isolation=isolation)
    return [(each.value or b"").decode() for each in found]


async def leaders_of(view: BrokerView, topic: str) -> TopicLeaders:
    async def ask(connection: Connection) -> object:
        return await topic_leaders(connection, topic)

    found = await view.ask(ask)
    assert isinstance(found, TopicLeaders)
    return found


async def _opened(connection: Connection, id_: str, view: BrokerView) -> TransactionalProducer:
    """Some coordinators are found before they have read what they are to know."""
    async with asyncio.timeout(60):
        while True:
            with suppress(RetryLater):
                return await TransactionalProducer.open(
                    connection, id_, connect=view.connect_to, sleep=asyncio.sleep
                )
            await asyncio.sleep(0.5)


@asynccontextmanager
async def producing(view: BrokerView, id_: str) -> AsyncIterator[TransactionalProducer]:
    host, port = view._settings.host, view._settings.port
    connection = await view.connect_to(view._settings.node_id, host, port)
    try:
        producer = await _opened(connection, id_, view)
        try:
            yield producer
        finally:
            await producer.close()
    finally:
        await connection.close()


async def test_what_it_writes_is_what_stock_consumers_read(broker: KafkaBroker, topic: str) -> None:
    async with (
        view_of(connection_settings(broker)) as view,
        producing(view, f"id-{uuid4()}") as producer,
    ):
        leaders = await leaders_of(view, topic)
        first = await producer.write(topic, leaders, {0: records("a", "b"), 1: records("c")})
        second = await producer.write(topic, leaders, {0: records("d")})
    assert (first, second) == ({0: 0, 1: 0}, {0: 3})  # behind the marker of the first
    for isolation in ("read_committed", "read_uncommitted"):
        assert values(broker, topic, 0, isolation) == ["a", "b", "d"]
        assert values(broker, topic, 1, isolation) == ["c"]
    found = consume_all(broker.bootstrap, topic, 0)[1]
    assert (found.timestamp_ms, found.headers) == (1_760_000_000_001, (("number", b"\1"),))


async def test_a_later_producer_fences_an_earlier_one(broker: KafkaBroker, topic: str) -> None:
    id_ = f"id-{uuid4()}"
    async with (
        view_of(connection_settings(broker)) as view,
        producing(view, id_) as earlier,
        producing(view, f"other-{id_}") as other,
    ):
        leaders = await leaders_of(view, topic)
        await earlier.write(topic, leaders, {0: records("earlier")})
        async with producing(view, id_) as later:
            with pytest.raises(Fenced):
                await earlier.write(topic, leaders, {0: records("too late")})
            with pytest.raises(RetryLater, match="open a new"):
                await earlier.write(topic, leaders, {0: records("too late")})
            await later.write(topic, leaders, {0: records("later")})
        await other.write(topic, leaders, {0: records("other")})
    assert values(broker, topic, 0, "read_uncommitted") == ["earlier", "later", "other"]


async def test_a_producer_that_died_in_a_transaction_is_read_as_far_as_it_came(
    broker: KafkaBroker, topic: str
) -> None:
    id_ = f"id-{uuid4()}"
    async with view_of(connection_settings(broker)) as view:
        leaders = await leaders_of(view, topic)
        async with producing(view, id_) as dying:
            identity, coordinator = dying.identity, dying._coordinator
            await transaction_requests.add_partitions(coordinator, identity, topic, (0, 1))
            batch = encode_batch(
                records("half"), base_offset=0, producer_id=identity.producer_id,
                producer_epoch=identity.epoch, base_sequence=0, transactional=True,
            )  # fmt: skip
            leader = await dying.leader(topic, leaders, leaders.leaders[0])
            await transaction_requests.produce(leader, id_, {(topic, 0): batch}, timeout_s=5)
            async with producing(view, id_) as later:
                # Its markers are there: what is late is refused at the partition, too.
                late = {(topic, 1): batch}
                with pytest.raises(Fenced):
                    await transaction_requests.produce(leader, id_, late, timeout_s=5)
                await later.write(topic, leaders, {0: records("whole")})
    assert values(broker, topic, 0, "read_uncommitted") == ["half", "whole"]
    assert values(broker, topic, 0, "read_committed") == ["whole"]
    assert values(broker, topic, 1, "read_uncommitted") == []


async def test_without_leader_nothing_is_begun(broker: KafkaBroker, topic: str) -> None:
    async with (
        view_of(connection_settings(broker)) as view,
        producing(view, f"id-{uuid4()}") as producer,
    ):
        leaders = await leaders_of(view, topic)
        none = TopicLeaders(leaders.topic_id, {0: NO_LEADER}, leaders.addresses)
        with pytest.raises(RetryLater, match="no live leader"):
            await producer.write(topic, none, {0: records("a")})
        assert producer.over
    assert values(broker, topic, 0, "read_uncommitted") == []


async def test_a_lost_answer_is_an_outcome_that_nobody_knows(
    broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        view_of(connection_settings(broker)) as view,
        producing(view, f"id-{uuid4()}") as producer,
    ):
        leaders = await leaders_of(view, topic)
        leader = await producer.leader(topic, leaders, leaders.leaders[0])

        async def lost(frame: bytes, *_: object) -> bytes:
            leader._writer.write(frame)
            await leader._writer.drain()
            raise RetryLater("lost")

        monkeypatch.setattr(leader, "_exchange_frames", lost)
        with pytest.raises(OutcomeUnknown):
            await producer.write(topic, leaders, {0: records("a")})
        assert producer.over
