"""A read replica of a topic that its broker tiers itself: the broker's log start counts, and where
the broker never got the partition, it does not.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition

from kafka_listener.virtual_nodes import port_of
from tests.e2e.broker_site import TIERED
from tests.e2e.http import PLAIN
from tests.e2e.test_read_replicas import consumer
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, TOPIC_CONFIG, site
from tests.e2e.writer import Writer
from tests.real.kafka_clients import consume_all, log_bounds
from tests.real.ports import ports_in_a_row

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BROKER_ID = 1
RUNS_S = 3
"""Some runs of the broker's tasks."""


def is_out_of_range(bootstrap: str, offset: int) -> bool:
    client = consumer(bootstrap)
    try:
        client.assign([TopicPartition(TOPIC, 0, offset)])
        message = client.poll(60)
        assert message is not None
        error = message.error()
        return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        client.close()


def replica_at(listen: int) -> str:
    """All of its addresses, for librdkafka."""
    return f"127.0.0.1:{listen},127.0.0.1:{port_of(listen, BROKER_ID)}"


def test_what_a_broker_that_tiers_deleted_is_not_read(tmp_path: Path) -> None:
    """DeleteRecords reach its disk, where its log starts then; the tier still has what is below."""
    listen = ports_in_a_row(2 + BROKER_ID)
    with site(tmp_path, announced=False, read=f"127.0.0.1:{listen}") as (broker, node):
        assert broker.node_id == BROKER_ID
        replica = replica_at(listen)
        broker.create_topic(TOPIC, partitions=1, config=TOPIC_CONFIG)
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 4, "copies")
        writer.write_filler()
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) <= 2, "local retention")
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        assert everything[0].offset == 0 < int(broker.segment_files(TOPIC, 0)[0].stem)
        assert consume_all(replica, TOPIC, 0) == everything
        policy = {"retention_ms": None, "retention_bytes": None, "copy_paused": False}
        url = f"{node.url}/v1/topics/{TOPIC}/policy"
        assert PLAIN.put(url, json=policy | {"delete_paused": True}).status_code == 200
        cut = everything[-2].offset
        assert cut > int(broker.segment_files(TOPIC, 0)[0].stem)
        broker.delete_records(TOPIC, 0, cut)
        time.sleep(RUNS_S)
        assert tier.segments()[0]["start_offset"] == 0, "nothing is deleted meanwhile"
        assert log_bounds(replica, TOPIC, 0) == log_bounds(broker.bootstrap, TOPIC, 0)
        assert is_out_of_range(replica, 0)
        assert consume_all(replica, TOPIC, 0) == consume_all(broker.bootstrap, TOPIC, 0)


def test_what_nodes_tiered_is_read_where_the_broker_is_not_given_it(tmp_path: Path) -> None:
    """Its retention took the head, so that it would delete the tier's."""
    listen = ports_in_a_row(2 + BROKER_ID)
    read = f"127.0.0.1:{listen}"
    with site(tmp_path, announced=False, read=read) as (broker, node):
        replica = replica_at(listen)
        plain = {name: each for name, each in TOPIC_CONFIG.items() if name not in TIERED}
        broker.create_topic(TOPIC, partitions=1, config=plain)
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1):
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 6, "copies")
        everything = consume_all(replica, TOPIC, 0)
        broker.alter_topic(TOPIC, {"retention.bytes": "100000"})
        broker.wait_until(lambda: log_bounds(broker.bootstrap, TOPIC, 0)[0] > 0, "retention")
        broker.alter_topic(TOPIC, {"retention.bytes": "-1"} | TIERED)
        mode = f"{node.url}/v1/topics/{TOPIC}/partitions/0/mode"
        answer = PLAIN.put(mode, json={"mode": "delegated", "confirm": TOPIC})
        assert answer.status_code == 200, answer.text
        broker.wait_until(
            lambda: "the tier has it from offset" in tier.status()["why_not_text"], "its word"
        )
        found = consume_all(replica, TOPIC, 0)
        assert log_bounds(replica, TOPIC, 0)[0] == 0
        assert found[: len(everything)] == everything
