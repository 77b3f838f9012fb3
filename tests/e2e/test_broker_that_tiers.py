"""A stock broker with tiered storage, whose two managers are the plug-in, and the node beside it:
ordinary consumers read what only the tier has.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

import pytest

from tests.e2e.http import PLAIN
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import (
    TOPIC,
    TOPIC_CONFIG,
    below,
    site,
    tasks_of,
    three,
    topic_config,
)
from tests.e2e.writer import Writer
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import consume_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("3.9.2", marks=pytest.mark.soak),
        pytest.param("4.0.2", marks=pytest.mark.soak),
        KAFKA_VERSION,
        pytest.param("4.4.0", marks=pytest.mark.soak),
    ],
)
def test_consumers_read_through_their_broker_what_only_the_tier_has(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=topic_config(version))
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 5, "copies")
            node.kill()
            node.start()
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 10, "copies")
        writer.write_filler()
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) <= 2, "local retention")
        local = int(broker.segment_files(TOPIC, 0)[0].stem)
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        committed = consume_all(broker.bootstrap, TOPIC, 0, isolation="read_committed")
        assert everything[0].offset == 0 < local
        offsets = [record.offset for record in everything]
        assert offsets == sorted(set(offsets))
        assert 0 < len(committed) < len(everything)
        assert tier.records("read_committed") == below(committed, tier)
        status = tier.status()
        assert (status["mode"], status["why_not_copying"]) == ("delegated", "delegated")


def test_the_broker_expires_and_deletes_and_the_objects_go(tmp_path: Path) -> None:
    with site(tmp_path) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=TOPIC_CONFIG)
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1):
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 6, "copies")
        broker.restart()
        before = consume_all(broker.bootstrap, TOPIC, 0)
        broker.alter_topic(TOPIC, {"retention.bytes": "150000"})
        broker.wait_until(lambda: consume_all(broker.bootstrap, TOPIC, 0)[0].offset > 0, "expiry")
        kept = consume_all(broker.bootstrap, TOPIC, 0)
        assert kept == [record for record in before if record.offset >= kept[0].offset]
        broker.delete_topic(TOPIC)
        broker.wait_until(lambda: objects(tmp_path) == [], "the topic's objects to go")


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("3.9.2", marks=pytest.mark.soak),
        KAFKA_VERSION,
        pytest.param("4.4.0", marks=pytest.mark.soak),
    ],
)
def test_leaders_move_and_a_broker_that_lost_its_disk_is_built_from_the_tier(
    tmp_path: Path, version: str
) -> None:
    with three(tmp_path, version) as (cluster, quorum):
        cluster.create_topic(TOPIC, replicas=[[1, 2, 3]], config=topic_config(version))
        tier = TierClient(quorum.nodes[3].url, TOPIC, 0)

        def copied(count: int) -> None:
            cluster.brokers[1].wait_until(
                lambda: tier.status().get("remote_segments", 0) >= count, f"{count} copies"
            )

        with Writer(cluster.bootstrap, TOPIC, 1) as writer:
            copied(4)
            cluster.move_leader(TOPIC, 0, to=2)
            copied(8)
            cluster.brokers[3].kill()
            # 3.9 dies where a controller that lost its disk is told that it still leads.
            cluster.brokers[1].wait_until(
                lambda: cluster.isr(TOPIC, 0) == {1, 2}, "a controller that lets go of broker 3"
            )
            shutil.rmtree(cluster.brokers[3].log_dir)
            copied_before = tier.status()["remote_segments"]
            cluster.brokers[3].format()
            cluster.brokers[3].start()
            copied(copied_before + 2)
        writer.write_filler()
        cluster.wait_for_replicas(TOPIC, 1)
        everything = consume_all(cluster.bootstrap, TOPIC, 0)
        committed = consume_all(cluster.bootstrap, TOPIC, 0, isolation="read_committed")
        assert everything[0].offset == 0
        assert int(cluster.brokers[3].segment_files(TOPIC, 0)[0].stem) > 0
        cluster.move_leader(TOPIC, 0, to=3)
        assert consume_all(cluster.bootstrap, TOPIC, 0) == everything
        again = consume_all(cluster.bootstrap, TOPIC, 0, isolation="read_committed")
        assert again == committed
        assert 0 < len(committed) < len(everything)


@pytest.mark.soak
def test_tiering_is_disabled_enabled_again_and_records_are_deleted(tmp_path: Path) -> None:
    with site(tmp_path) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=TOPIC_CONFIG)
        tier = TierClient(node.url, TOPIC, 0)

        def copied(count: int) -> None:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= count, "copies")

        with Writer(broker.bootstrap, TOPIC, 1):
            copied(4)
        before = consume_all(broker.bootstrap, TOPIC, 0)
        cut = before[len(before) // 3].offset
        broker.delete_records(TOPIC, 0, cut)
        broker.wait_until(lambda: tier.segments()[0]["end_offset"] >= cut, "what is below to go")
        left = [record for record in before if record.offset >= cut]
        assert consume_all(broker.bootstrap, TOPIC, 0) == left
        without = {"local.retention.bytes": "-2", "local.retention.ms": "-2"}
        broker.alter_topic(TOPIC, {"remote.log.copy.disable": "true", **without})
        broker.alter_topic(
            TOPIC, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        )
        broker.wait_until(lambda: objects(tmp_path) == [], "the topic's objects to go")
        broker.alter_topic(
            TOPIC,
            {
                "remote.storage.enable": "true",
                "remote.log.copy.disable": "false",
                "remote.log.delete.on.disable": "false",
                "local.retention.bytes": "1",
            },
        )
        with Writer(broker.bootstrap, TOPIC, 1):
            copied(3)
        again = consume_all(broker.bootstrap, TOPIC, 0)
        offsets = [record.offset for record in again]
        assert offsets == sorted(set(offsets))
        assert tier.segments()[0]["start_offset"] <= offsets[0]


@pytest.mark.soak
def test_what_the_node_tiered_goes_on_with_the_broker_once_an_admin_says_so(
    tmp_path: Path,
) -> None:
    with site(tmp_path, announced=False) as (broker, node):
        plain = {**TOPIC_CONFIG, "remote.storage.enable": "false"}
        del plain["local.retention.ms"], plain["local.retention.bytes"]
        broker.create_topic(TOPIC, partitions=1, config=plain)
        tier = TierClient(node.url, TOPIC, 0)

        def copied(count: int) -> None:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= count, "copies")

        with Writer(broker.bootstrap, TOPIC, 1):
            copied(4)
        broker.alter_topic(TOPIC, {"remote.storage.enable": "true", "local.retention.bytes": "1"})
        broker.wait_until(lambda: "delegated first" in tier.status()["why_not_text"], "its word")
        mode = f"{node.url}/v1/topics/{TOPIC}/partitions/0/mode"
        answer = PLAIN.put(mode, json={"mode": "delegated", "confirm": TOPIC})
        assert answer.status_code == 200, answer.text
        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            copied(8)
        writer.write_filler()
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) <= 2, "local retention")
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        assert everything[0].offset == 0
        offsets = [record.offset for record in everything]
        assert offsets == sorted(set(offsets))


def test_a_node_that_hangs_or_is_away_for_long_costs_the_broker_nothing(tmp_path: Path) -> None:
    with site(tmp_path) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=TOPIC_CONFIG)
        tier = TierClient(node.url, TOPIC, 0)

        def copied(more: int) -> None:
            count = tier.status().get("remote_segments", 0) + more
            broker.wait_until(lambda: tier.status()["remote_segments"] >= count, "copies")

        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 3, "copies")
            threads = tasks_of(broker)
            with ThreadPoolExecutor(1) as pool:
                node.suspend()
                reading = pool.submit(consume_all, broker.bootstrap, TOPIC, 0)
                time.sleep(12)  # past every deadline of the plug-in but that of a write
                node.wake()
                assert reading.result()[0].offset == 0
            copied(3)
            node.stop()
            time.sleep(12)
            node.start()
            copied(3)
            assert threads <= tasks_of(broker)
            broker.restart()
            copied(3)
        writer.write_filler()
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        assert everything[0].offset == 0
        offsets = [record.offset for record in everything]
        assert offsets == sorted(set(offsets))


def objects(tmp_path: Path) -> list[str]:
    """Names of the topic's objects. `Path.glob` would fail at a folder that goes meanwhile."""
    found = map(Path, glob(f"{tmp_path}/tier/**/{TOPIC}-*/**/*", recursive=True))
    return [path.name for path in found if path.is_file()]
