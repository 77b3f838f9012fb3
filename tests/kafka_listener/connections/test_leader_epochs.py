"""A stock broker's word about the epochs of its log, as far back as it knows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.leader_epochs import LeaderEpochs
from kafka_listener.reading.read_port import EpochEnd
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, produce

pytestmark = pytest.mark.integration

TOPIC = "orders"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as started:
        started.create_topic(TOPIC)
        yield started


async def test_a_leader_tells_where_an_epoch_ends_until_its_log_begins_there(
    broker: KafkaBroker,
) -> None:
    records = [NewRecord(b"x") for _ in range(10)]
    produce(broker.bootstrap, TOPIC, 0, records)
    broker.restart()  # which begins an epoch
    produce(broker.bootstrap, TOPIC, 0, records)
    host, _, port = broker.bootstrap.rpartition(":")
    brokers = Brokers(((host, int(port)),), "", time.monotonic, lambda: "nonce")
    twin = await brokers.open(None)
    await brokers.learn_topics(twin, [TOPIC], ())
    await twin.close()
    topic_id = brokers.topics.id_of(TOPIC)
    assert topic_id is not None
    tip = TopicIdPartition(TOPIC, Uuid(topic_id), 0)
    epochs = LeaderEpochs(brokers)
    ends = {led: await epochs.end_of(tip, 0, led) for led in range(5)}
    (leader_epoch,) = (led for led, end in ends.items() if end is not None)
    assert ends[leader_epoch] == EpochEnd(0, 10)
    assert await epochs.end_of(tip, leader_epoch, leader_epoch) == EpochEnd(leader_epoch, 20)
    assert await epochs.end_of(tip, leader_epoch + 1, leader_epoch) is None
    broker.delete_records(TOPIC, 0, 5)
    assert await epochs.end_of(tip, 0, leader_epoch) == EpochEnd(0, 10)
    broker.delete_records(TOPIC, 0, 15)
    assert await epochs.end_of(tip, 0, leader_epoch) is None, "it would say 15"
    broker.stop()
    assert await epochs.end_of(tip, leader_epoch, leader_epoch) is None
    await brokers.close()
