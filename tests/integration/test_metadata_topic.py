"""Kafka's metadata topic on a stock broker, read to its end and judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.examination import Examination, examine_topic
from rlm.migration.topic_checks import TOPIC
from rlm.migration.topic_partitioner import metadata_partition
from rlmm.records.segment_records import encode_segment_record
from rlmm.segment import RemoteLogSegmentMetadata
from strandline.cli.exit_codes import ExitCode
from tests.integration.test_broker_view import connection_settings, view_of
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, produce, produce_transactions
from tests.real.kafkas_metadata import by_our_replay, read_by_kafkas_manager
from tests.rlm.migration.kafka_history import history_of
from tests.rlm.migration.test_topic_replay import values_by_kafka
from tests.rlmm.state_world import ORDERS
from tests.strandline.command import strandline

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker) -> Iterator[str]:
    """The topic as Kafka's manager makes it, but with two partitions."""
    broker.create_topic(TOPIC, partitions=2, config=KEPT)
    yield TOPIC
    broker.delete_topic(TOPIC)
    broker.wait_until(lambda: TOPIC not in broker.admin().list_topics().topics, "its deletion")


async def examined(broker: KafkaBroker) -> tuple[Examination, list[tuple[int, int, int, int]]]:
    told: list[tuple[int, int, int, int]] = []
    async with view_of(connection_settings(broker)) as view:
        return await examine_topic(view, lambda *progress: told.append(progress)), told


def wrong(found: Examination) -> dict[str, str]:
    return {check.name: check.detail for check in found.checks if not check.ok}


def test_our_replay_is_what_kafkas_own_manager_makes_of_the_topic(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """Both switches compare with the replay. Here it is compared with Kafka's class: partitions by
    chance, with unclean elections, segments that hide others, failed copies, and deletions.
    """
    histories = [
        history_of(seed, steps=80, partition=TopicIdPartition("orders", ORDERS.topic_id, seed))
        for seed in range(100)
    ]
    values: dict[int, list[NewRecord]] = {0: [], 1: []}
    for history in histories:
        into = values[metadata_partition(history.partition, 2)]
        into += [NewRecord(encode_segment_record(each)) for each in history.records]
    for number, records in values.items():
        produce(broker.bootstrap, topic, number, records)
    tips = [history.partition for history in histories]
    kafkas = read_by_kafkas_manager(broker.bootstrap, tmp_path, 2, tips)
    rows, hidden = 0, 0
    for history in histories:
        ours = by_our_replay(history.cache)
        theirs = kafkas["orders", history.partition.partition]
        assert theirs == ours, history.partition
        rows += len(ours.segments)
        hidden += sum(id_ is None for id_ in ours.found.values())
    assert rows > 1_000
    assert hidden > 50, "Kafka finds nothing behind a short segment that hides a longer one"


async def test_a_broker_without_the_topic_is_told(broker: KafkaBroker) -> None:
    found, _ = await examined(broker)
    assert "unknown_topic_or_partition" in str(wrong(found))


async def test_a_whole_topic_can_be_moved(broker: KafkaBroker, topic: str) -> None:
    values = values_by_kafka()
    produce(broker.bootstrap, topic, 0, [NewRecord(value) for value in values], codec="zstd")
    records = records_of(1)
    # A shadow's aborted attempt is read as Kafka's own manager reads it; markers are no gap.
    transactions: Sequence[tuple[Sequence[NewRecord], bool]] = [(records, False), (records, True)]
    produce_transactions(
        broker.bootstrap, topic, 1, transactions, transactional_id=f"shadow-{uuid4()}"
    )
    found, told = await examined(broker)
    assert wrong(found) == {}
    assert [(each.start, each.end, each.records) for each in found.reads] == [
        (0, len(values), len(values)),
        (0, 6, 4),
    ]
    assert found.partitions
    assert told[-1] == (1, 2, 6, 6)


async def test_records_from_before_the_topic_was_widened_are_told(
    broker: KafkaBroker, topic: str
) -> None:
    """A partition's older segments are in one partition of the topic, its newer ones in another:
    a switch would import the latter in place of the former, or the former in place of the latter.
    """
    produce(broker.bootstrap, topic, 0, records_of(1))
    produce(broker.bootstrap, topic, 1, records_of(1))
    found, _ = await examined(broker)
    told = wrong(found)
    assert told.keys() == {"records are where Kafka puts them"}
    assert "0 has segments of orders-" in told["records are where Kafka puts them"]
    assert len(found.partitions) == 1


async def test_a_segment_that_the_metadata_log_would_refuse_is_told(
    broker: KafkaBroker, topic: str
) -> None:
    tip = TopicIdPartition("orders", ORDERS.topic_id, 0)
    added = history_of(7, steps=80, partition=tip).records[0]
    assert isinstance(added, RemoteLogSegmentMetadata)
    long = encode_segment_record(replace(added, custom_metadata=b"x" * 5_000))
    produce(broker.bootstrap, topic, metadata_partition(tip, 2), [NewRecord(long)])
    found, _ = await examined(broker)
    assert wrong(found).keys() == {"every segment can be imported"}
    assert str(added.segment_id) in wrong(found)["every segment can be imported"]


def records_of(metadata_partition_: int) -> list[NewRecord]:
    """Two records of a partition that belong into this partition of two."""
    tips = (TopicIdPartition("orders", ORDERS.topic_id, number) for number in range(100))
    tip = next(tip for tip in tips if metadata_partition(tip, 2) == metadata_partition_)
    return [
        NewRecord(encode_segment_record(each))
        for each in history_of(7, steps=80, partition=tip).records[:2]
    ]


async def test_records_that_are_gone_or_foreign_are_told(broker: KafkaBroker, topic: str) -> None:
    values = values_by_kafka()
    produce(broker.bootstrap, topic, 0, [NewRecord(value) for value in values])
    produce(broker.bootstrap, topic, 1, [NewRecord(b"hello"), NewRecord(None, key=b"key")])
    broker.delete_records(topic, 0, 3)
    broker.alter_topic(topic, {"retention.ms": "604800000"})
    found, _ = await examined(broker)
    told = wrong(found)
    assert "0 begins at 3" in told["each begins at offset 0"]
    assert f"{TOPIC}-1 0" in told["every record can be decoded"]
    assert "retention.ms=604800000 instead of -1" in told["settings of the topic"]
    assert "no gap" not in told
    assert found.reads[0].records == len(values) - 3


def test_the_command_tells_it_as_a_table_and_keeps_a_report(
    broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    produce(broker.bootstrap, topic, 0, [NewRecord(value) for value in values_by_kafka()])
    config, report = tmp_path / "strandline.toml", tmp_path / "before.json"
    config.write_text(
        f"""
[node]
data_dir = "{tmp_path / "data"}"
[kafka]
broker = "{broker.bootstrap}"
[stores.main]
kind = "filesystem"
path = "{tmp_path / "store"}"
"""
    )
    identity = ("--node-id", broker.node_id, "--kafka-cluster-id", broker.cluster_id)
    made = strandline("format", "--config", config, "--standalone", *identity)
    assert made.returncode == 0, made.stderr
    done = strandline("migrate", "check", "--config", config, "--report", report)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "nothing stands in the way of a move" in done.stdout
    kept = json.loads(report.read_text())
    as_json = strandline("migrate", "check", "--config", config, "--json")
    assert json.loads(as_json.stdout) == kept
    assert kept["kafka_cluster_id"] == broker.cluster_id
    assert all(len(each["digest"]) == 64 for each in kept["partitions"])
    produce(broker.bootstrap, topic, 1, [NewRecord(b"hello")])
    done = strandline("migrate", "check", "--config", config)
    assert done.returncode == ExitCode.INCOMPLETE
    assert "1 of 8 checks stand in the way of a move" in done.stdout
