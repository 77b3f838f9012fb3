"""A stock broker that tiers by a node which does not see its disk: segments are sent."""

from __future__ import annotations

import shutil
import time
from glob import glob
from pathlib import Path

import pytest

from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, TOPIC_CONFIG, site, three, topic_config
from tests.e2e.writer import Writer
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import consume_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


OTHERS = [pytest.param(each, marks=pytest.mark.soak) for each in ("3.9.2", "4.0.2", "4.4.0")]


@pytest.mark.parametrize("version", [*OTHERS, KAFKA_VERSION])
def test_consumers_read_what_a_broker_sent_to_a_node_that_does_not_see_its_disk(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version, shared=False) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=topic_config(version))
        tier = TierClient(node.url, TOPIC, 0)

        def copied(count: int) -> None:
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= count, "copies")

        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            copied(4)
            node.kill()
            left = node.spool / "AAAAAAAAAAAAAAAAAAAAAQ"
            left.mkdir(parents=True)
            node.start()
            copied(8)
        assert not left.exists()
        writer.write_filler()
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) <= 2, "local retention")
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        committed = consume_all(broker.bootstrap, TOPIC, 0, isolation="read_committed")
        offsets = [record.offset for record in everything]
        assert offsets[0] == 0 < int(broker.segment_files(TOPIC, 0)[0].stem)
        assert offsets == sorted(set(offsets))
        assert 0 < len(committed) < len(everything)
        assert tier.status()["mode"] == "delegated"
        broker.delete_topic(TOPIC)
        broker.wait_until(lambda: not _logs(tmp_path / "tier"), "the topic's objects to go")


def _logs(tier: Path) -> list[str]:
    """The `.log` files of the tier. `rglob` would fail at a folder that goes while it looks."""
    return glob(f"{tier}/**/*.log", recursive=True)


def _until_files_come(spool: Path) -> None:
    """Without a pause: they stay for milliseconds."""
    end = time.monotonic() + 60
    while not any(spool.iterdir()):
        assert time.monotonic() < end, "no segment is sent"


@pytest.mark.soak
@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION])
def test_a_broker_that_is_killed_while_it_sends_leaves_nothing_behind(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version, shared=False) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=topic_config(version))
        tier = TierClient(node.url, TOPIC, 0)

        def copied(more: int) -> None:
            count = tier.status().get("remote_segments", 0) + more
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= count, "copies")

        with Writer(broker.bootstrap, TOPIC, 1) as writer:
            for _ in range(3):
                copied(1)
                _until_files_come(node.spool)
                broker.kill()
                broker.start()
            copied(4)
        writer.write_filler()
        offsets = [record.offset for record in consume_all(broker.bootstrap, TOPIC, 0)]
        assert offsets[0] == 0
        assert offsets == sorted(set(offsets))
        broker.delete_topic(TOPIC)
        broker.wait_until(lambda: not _logs(tmp_path / "tier"), "the topic's objects to go")
        broker.wait_until(lambda: not any(node.spool.iterdir()), "an empty spool")


@pytest.mark.soak
def test_leaders_move_between_brokers_whose_nodes_see_no_disk(tmp_path: Path) -> None:
    """Consumers find each segment by the leader epochs that the brokers told."""
    with three(tmp_path, shared=False) as (cluster, quorum):
        cluster.create_topic(TOPIC, replicas=[[1, 2, 3]], config=TOPIC_CONFIG)
        tier = TierClient(quorum.nodes[3].url, TOPIC, 0)

        def copied(count: int) -> None:
            cluster.brokers[1].wait_until(
                lambda: tier.status().get("remote_segments", 0) >= count, f"{count} copies"
            )

        with Writer(cluster.bootstrap, TOPIC, 1) as writer:
            copied(3)
            for number, leader in enumerate((2, 1, 2), 2):
                cluster.move_leader(TOPIC, 0, to=leader)
                copied(3 * number)
            cluster.brokers[3].kill()
            shutil.rmtree(cluster.brokers[3].log_dir)
            before = tier.status()["remote_segments"]
            cluster.brokers[3].format()
            cluster.brokers[3].start()
            copied(before + 2)
        writer.write_filler()
        cluster.wait_for_replicas(TOPIC, 1)
        everything = consume_all(cluster.bootstrap, TOPIC, 0)
        offsets = [record.offset for record in everything]
        assert offsets[0] == 0
        assert offsets == sorted(set(offsets))
        starts = [each for row in tier.segments() for each in row["leader_epochs"]]
        assert len({each["epoch"] for each in starts}) >= 4
        cluster.move_leader(TOPIC, 0, to=3)
        assert consume_all(cluster.bootstrap, TOPIC, 0) == everything
