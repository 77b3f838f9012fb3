"""Kafka 4.3's own tools, kcat and librdkafka look at a quorum through its listener, and cannot
change it.

Everything is asked of a node that does not lead, where there is one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from rlmm.metadata_log import Proposal
from rlmm.records.records import encode
from rlmm.rows.feature_level import LEVELS_KNOWN
from rlmm.wire.sasl_server import PEER_USER, SCRAM
from tests.real.kafka import run_tool
from tests.real.kcat import run_kcat
from tests.rlmm.quorum.following import collect
from tests.rlmm.quorum.local_network import directory_id
from tests.rlmm.records.test_records import ADD
from tests.rlmm.wire.wire_network import (
    CLUSTER_ID,
    SECRET,
    STEADY,
    Wire,
    WireReplica,
    leader_of,
    replicas,
)

pytestmark = pytest.mark.integration

TOPIC = "__remote_log_metadata"
FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization."
    "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)
CLIENT_DEADLINE_S = 30.0


@pytest.fixture(params=[1, 3], ids=["one voter", "three voters"])
async def nodes(request: Any, tmp_path: Path) -> AsyncIterator[list[WireReplica]]:
    wire = Wire(raft=STEADY)
    async with replicas(wire, count=request.param, home=tmp_path) as running:
        leader = await leader_of(running)
        await leader.log.propose((encode(ADD),), deadline_s=10)
        yield running


def other_than(leader: WireReplica, nodes: list[WireReplica]) -> str:
    """`host:port` of a node that does not lead, or of the only one."""
    node = next((node for node in nodes if node is not leader), leader)
    return f"127.0.0.1:{node.port}"


async def tool(main_class: str, *arguments: str) -> str:
    return await asyncio.to_thread(run_tool, f"org.apache.kafka.tools.{main_class}", *arguments)


@pytest.mark.parametrize("bootstrap", ["--bootstrap-server", "--bootstrap-controller"])
async def test_kafka_metadata_quorum_describes_it(nodes: list[WireReplica], bootstrap: str) -> None:
    leader = await leader_of(nodes)
    asked = (bootstrap, other_than(leader, nodes), "describe")
    status, replication = await asyncio.gather(
        *(tool("MetadataQuorumCommand", *asked, each) for each in ("--status", "--replication"))
    )
    assert re.search(rf"ClusterId: +{CLUSTER_ID}\n", status)
    assert re.search(rf"LeaderId: +{leader.node_id}\n", status)
    high_watermark = leader.log.describe().high_watermark
    assert re.search(rf"HighWatermark: +{high_watermark}\n", status)
    for node in nodes:
        assert f'"QUORUM://127.0.0.1:{node.port}"' in status
        assert f'"directoryId": "{directory_id(node.node_id)}"' in status
    rows = [line.split() for line in replication.splitlines() if line[:1].isdigit()]
    assert {(row[0], row[1], row[6]) for row in rows} == {
        (
            str(node.node_id),
            str(directory_id(node.node_id)),
            "Leader" if node is leader else "Follower",
        )
        for node in nodes
    }
    # The time of day, not of the core's clock.
    assert all(int(row[4]) > 1_600_000_000_000 for row in rows)


async def test_kafka_get_offsets_knows_both_ends(nodes: list[WireReplica]) -> None:
    leader = await leader_of(nodes)
    asked = ("--bootstrap-server", other_than(leader, nodes), "--topic-partitions", f"{TOPIC}:0")
    latest, earliest = await asyncio.gather(
        *(tool("GetOffsetShell", *asked, "--time", when) for when in ("-1", "-2"))
    )
    assert latest.strip() == f"{TOPIC}:0:{leader.log.describe().high_watermark}"
    assert earliest.strip() == f"{TOPIC}:0:0"


async def test_a_console_consumer_prints_segments_as_kafka_knows_them(
    nodes: list[WireReplica],
) -> None:
    printed = await tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", other_than(await leader_of(nodes), nodes)),
        *("--topic", TOPIC, "--partition", "0", "--offset", "earliest"),
        *("--formatter", FORMATTER, "--max-messages", "1", "--timeout-ms", "30000"),
    )
    assert "RemoteLogSegmentMetadata{remoteLogSegmentId=" in printed
    assert "topicIdPartition=" in printed
    assert "state=COPY_SEGMENT_STARTED" in printed


async def test_kafka_features_shows_the_levels_a_node_knows(nodes: list[WireReplica]) -> None:
    asked = other_than(await leader_of(nodes), nodes)
    printed = await tool("FeatureCommand", "--bootstrap-server", asked, "describe")
    words = printed.split()
    assert words[:2] == ["Feature:", "metadata.version"]
    for name, level in (
        ("SupportedMinVersion:", LEVELS_KNOWN.lowest),
        ("SupportedMaxVersion:", LEVELS_KNOWN.highest),
    ):
        assert words[words.index(name) + 1 :][:2] == ["UNKNOWN", str(level)]


async def test_kcat_lists_the_topic_with_its_leader(nodes: list[WireReplica]) -> None:
    leader = await leader_of(nodes)
    done = await asyncio.to_thread(run_kcat, "-b", other_than(leader, nodes), "-L", "-t", TOPIC)
    assert done.returncode == 0, done.stderr
    assert f'topic "{TOPIC}" with 1 partitions:' in done.stdout
    replicas_listed = ",".join(str(node.node_id) for node in nodes)
    assert f"partition 0, leader {leader.node_id}, replicas: {replicas_listed}," in done.stdout
    assert f"broker {leader.node_id} at 127.0.0.1:{leader.port}" in done.stdout


async def test_kcat_reads_as_many_records_as_were_written(nodes: list[WireReplica]) -> None:
    leader = await leader_of(nodes)
    written = [encode(ADD).value, *(b"%d" % number for number in range(200))]
    await leader.log.propose(tuple(Proposal(None, each) for each in written[1:]), deadline_s=10)
    done = await asyncio.to_thread(
        run_kcat,
        *("-b", other_than(leader, nodes), "-C", "-t", TOPIC, "-p", "0"),
        *("-o", "beginning", "-e", "-q", "-f", "%S\n"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(each)) for each in written]


async def test_kcat_without_the_secret_is_refused_to_produce(nodes: list[WireReplica]) -> None:
    leader = await leader_of(nodes)
    end = leader.log.describe().log_end_offset
    done = await asyncio.to_thread(
        run_kcat,
        *("-b", other_than(leader, nodes), "-P", "-t", TOPIC, "-p", "0"),
        *("-X", "message.timeout.ms=10000"),
        stdin="produced\n",
    )
    assert done.returncode != 0
    assert "Cluster authorization failed" in done.stderr
    assert leader.log.describe().log_end_offset == end


def consumed(bootstrap: str, count: int) -> list[bytes]:
    """What librdkafka (kcat's library) reads from the start."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(CLIENT_DEADLINE_S)
            assert message is not None, "nothing within the deadline"
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        return found
    finally:
        consumer.close()


async def test_librdkafka_reads_it_and_waits_for_what_comes(nodes: list[WireReplica]) -> None:
    leader = await leader_of(nodes)
    reading = asyncio.create_task(asyncio.to_thread(consumed, other_than(leader, nodes), 3))
    for value in (b"first", b"second"):
        await leader.log.propose((Proposal(None, value),), deadline_s=10)
    assert await reading == [encode(ADD).value, b"first", b"second"]


def produced(bootstrap: str, **config: str) -> KafkaError | None:
    """How a stock producer fares with one record."""
    told: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.timeout.ms": 10_000,
            "linger.ms": 0,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    producer.produce(TOPIC, b"produced", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(CLIENT_DEADLINE_S) == 0
    return told[0]


async def test_a_producer_that_is_no_peer_is_refused(
    nodes: list[WireReplica], caplog: pytest.LogCaptureFixture
) -> None:
    leader = await leader_of(nodes)
    end = leader.log.describe().log_end_offset
    error = await asyncio.to_thread(produced, other_than(leader, nodes))
    assert error is not None
    assert error.name() == "CLUSTER_AUTHORIZATION_FAILED"
    assert leader.log.describe().log_end_offset == end
    assert "PRODUCE, which is refused: only peers may" in caplog.text


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
async def test_a_producer_with_the_secret_is_a_peer(
    nodes: list[WireReplica], mechanism: str
) -> None:
    leader = await leader_of(nodes)
    error = await asyncio.to_thread(
        produced,
        other_than(leader, nodes),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanisms=mechanism,
        sasl_username=PEER_USER,
        sasl_password=SECRET,
    )
    assert error is None
    records = await collect(leader, leader.log.describe().high_watermark)
    assert records[-1].value == b"produced"


def first_error(bootstrap: str, **config: str) -> KafkaError:
    """What a stock consumer is told first."""
    told: list[KafkaError] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "x",
            "log_level": 0,
            "error_cb": told.append,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        end = time.monotonic() + CLIENT_DEADLINE_S
        while not told:
            assert time.monotonic() < end, "no error within the deadline"
            assert consumer.poll(0.1) is None
        return told[0]
    finally:
        consumer.close()


async def test_a_client_with_another_secret_is_told_so(
    nodes: list[WireReplica], caplog: pytest.LogCaptureFixture
) -> None:
    error = await asyncio.to_thread(
        first_error,
        other_than(await leader_of(nodes), nodes),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanisms=SCRAM,
        sasl_username=PEER_USER,
        sasl_password="another",
    )
    assert error.name() == "_AUTHENTICATION"
    assert "does not log in" in caplog.text
    assert "the same on every node" in caplog.text
