"""Clients as they are, a stock broker that dropped its old records, and a tier that has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.leader_transactions import LeaderTransactions
from kafka_listener.reading.read_port import AbortedFrom
from tests.kafka_listener.connections.listening import REPLICA_ID, Listening
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.kafka import KafkaBroker, run_tool
from tests.real.kafka_clients import NewRecord, produce, produce_transactions
from tests.real.kcat import run_kcat

pytestmark = pytest.mark.integration

TOPIC = "orders"
RECORDS = 500
ON_BROKER_FROM = 300
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def value(number: int) -> bytes:
    return b"%06d" % number + b"x" * 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker")) as started:
        started.create_topic(TOPIC, config={"internal.segment.bytes": "16384"})
        records = [NewRecord(value(number)) for number in range(RECORDS)]
        produce(started.bootstrap, TOPIC, 0, records, config={"batch.size": "2000"})
        yield started


@pytest.fixture(scope="module")
def tier(broker: KafkaBroker) -> TierInMemory:
    """All sealed segments; the broker drops its older records afterwards."""
    kept = TierInMemory()
    kept.take(TOPIC, 0, broker.segment_files(TOPIC, 0)[:-1])
    broker.delete_records(TOPIC, 0, ON_BROKER_FROM)
    return kept


@pytest.fixture(scope="module")
def replica(broker: KafkaBroker, tier: TierInMemory) -> Iterator[Listening]:
    with Listening(broker.bootstrap, tier) as listening:
        yield listening


def consumed(address: str, group: str, **more: str) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest",
            "enable.partition.eof": True, **more,
        }
    )  # fmt: skip
    consumer.subscribe([TOPIC])
    values = []
    try:
        while (message := consumer.poll(60)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            values.append(message.value())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


ALL = [value(number) for number in range(RECORDS)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_from_0_to_the_end_once_and_its_commits_are_the_brokers(
    replica: Listening, broker: KafkaBroker, protocol: str
) -> None:
    group = f"confluent-{protocol}"
    assert consumed(replica.address, group, **{"group.protocol": protocol}) == ALL
    asked = ConsumerGroupTopicPartitions(group, [Partition(TOPIC, 0)])
    admin = broker.admin()
    (found,) = admin.list_consumer_group_offsets([asked]).values()
    assert [each.offset for each in found.result(60).topic_partitions] == [RECORDS]


def test_kcat_sees_this_replicas_node_and_reads_everything(
    replica: Listening, broker: KafkaBroker
) -> None:
    shown = run_kcat("-b", replica.address, "-L").stdout
    assert f"at 127.0.0.1:{replica.port + 1 + broker.node_id}" in shown
    assert broker.bootstrap not in shown
    read = run_kcat("-b", replica.address, "-C", "-t", TOPIC, "-o", "0", "-e", "-q")
    assert read.stdout.encode().splitlines() == ALL
    behind = run_kcat("-b", replica.address, "-C", "-t", TOPIC, "-o", "450", "-c", "1", "-q")
    assert behind.stdout.encode().splitlines() == [value(450)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_reads_everything(replica: Listening, protocol: str) -> None:
    out = run_tool(
        CONSOLE, "--bootstrap-server", replica.address, "--topic", TOPIC, "--from-beginning",
        "--max-messages", str(RECORDS), "--timeout-ms", "60000",
        "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    assert [line.encode() for line in out.splitlines() if line.startswith("0")] == ALL


def test_kafkas_tools_tell_the_ends_of_the_whole_log_and_the_groups(replica: Listening) -> None:
    for time, offset in (("-2", 0), ("-1", RECORDS)):
        asked = ("--bootstrap-server", replica.address, "--topic", TOPIC, "--time", time)
        assert run_tool("org.apache.kafka.tools.GetOffsetShell", *asked).strip() == (
            f"{TOPIC}:0:{offset}"
        )
    assert consumed(replica.address, "described") == ALL
    groups = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", replica.address, "--describe", "--group", "described"),
    )
    assert f"described       {TOPIC}          0          {RECORDS}" in groups


def test_no_node_that_an_admin_client_is_told_of_is_a_broker(
    replica: Listening, broker: KafkaBroker
) -> None:
    admin = AdminClient({"bootstrap.servers": replica.address})
    cluster = admin.describe_cluster().result(60)
    assert cluster.cluster_id == broker.cluster_id
    (node,) = cluster.nodes
    assert (node.port, node.id) == (
        replica.port + 1 + broker.node_id,
        (1 << 24) + REPLICA_ID * (1 << 15) + broker.node_id,
    )


def test_a_producer_is_told_to_stop(replica: Listening) -> None:
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": replica.address, "log_level": 0})
    producer.produce(TOPIC, b"no", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    (error,) = told
    assert error is not None
    assert error.code() == KafkaError.POLICY_VIOLATION


def test_an_idempotent_producer_ends(replica: Listening) -> None:
    settings = {"bootstrap.servers": replica.address, "enable.idempotence": True, "log_level": 0}
    producer = Producer(settings)
    producer.produce(TOPIC, b"no")
    with pytest.raises(KafkaException) as ended:
        producer.flush(30)
    assert ended.value.args[0].fatal()


def test_topics_are_not_made_through_a_replica(replica: Listening) -> None:
    with pytest.raises(RuntimeError, match="does not support CREATE_TOPICS"):
        run_tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", replica.address, "--create", "--topic", "another"),
        )


def test_a_leader_is_asked_for_the_aborted_transactions_at_an_offset(
    replica: Listening, broker: KafkaBroker
) -> None:
    broker.create_topic("paid")
    records = [NewRecord(b"a"), NewRecord(b"b")]
    produce_transactions(
        broker.bootstrap, "paid", 0, [(records, True), (records, False)], transactional_id="t"
    )
    brokers = replica.listener.brokers

    async def aborted_at(offset: int, epoch: int = 0) -> tuple[AbortedFrom, ...] | None:
        twin = await brokers.open(None)
        await brokers.learn_topics(twin, ["paid"], ())
        await twin.close()
        topic_id = brokers.topics.id_of("paid")
        assert topic_id is not None
        tip = TopicIdPartition("paid", Uuid(topic_id), 0)
        return await LeaderTransactions(brokers).aborted_at(tip, offset, epoch)

    # Offsets 0 and 1 are committed at 2, 3 and 4 aborted at 5, a moment after the producer hears.
    broker.wait_until(lambda: bool(replica.run(lambda: aborted_at(4))), "the abort's marker")
    (one,) = replica.run(lambda: aborted_at(4)) or ()
    assert one.first_offset == 3
    assert replica.run(lambda: aborted_at(6)) is None, "it is the end"
    assert replica.run(lambda: aborted_at(4, 1)) is None, "no leader of that epoch"


def test_the_tier_is_read_on_while_no_broker_is_there(
    broker: KafkaBroker, tier: TierInMemory, tmp_path: Path
) -> None:
    """At its end a client waits: it is told neither an error that ends it nor a wrong end."""
    with Listening(broker.bootstrap, tier) as replica:
        consumer = Consumer(
            {
                "bootstrap.servers": replica.address, "group.id": "unused",
                "enable.auto.commit": False, "fetch.message.max.bytes": 4_000,
                "queued.min.messages": 1, "fetch.queue.backoff.ms": 10,
            }
        )  # fmt: skip
        consumer.assign([Partition(TOPIC, 0, 0)])
        first = consumer.poll(60)
        assert first is not None
        assert first.value() == value(0)
        broker.stop()
        try:
            tiered = tier.batches[TOPIC, 0][-1].last + 1
            read = [consumer.poll(60) for _ in range(tiered - 1)]
            assert [each and each.value() for each in read] == ALL[1:tiered]
            assert consumer.poll(2) is None
        finally:
            broker.start()
        behind = [consumer.poll(60) for _ in range(RECORDS - tiered)]
        assert [each and each.value() for each in behind] == ALL[tiered:]
        consumer.close()
