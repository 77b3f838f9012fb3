"""A stock broker that tiers by a node which does not see its disk: segments are sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, TOPIC_CONFIG, site
from tests.e2e.writer import Writer
from tests.real.kafka_clients import consume_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_consumers_read_what_a_broker_sent_to_a_node_that_does_not_see_its_disk(
    tmp_path: Path,
) -> None:
    with site(tmp_path, shared=False) as (broker, node):
        broker.create_topic(TOPIC, partitions=1, config=TOPIC_CONFIG)
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
        objects = tmp_path / "tier"
        broker.wait_until(
            lambda: not [path for path in objects.rglob("*") if path.suffix == ".log"],
            "the topic's objects to go",
        )
