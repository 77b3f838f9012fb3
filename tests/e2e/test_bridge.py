"""A stock broker with the bridge and Kafka's reference storage, and the node beside it: until the
move Kafka's own metadata topic has the truth, as with Kafka's own class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.http import PLAIN
from tests.e2e.migrating_broker import of_bridge, of_kafka
from tests.e2e.node_process import NodeProcess
from tests.e2e.tiering_broker import TOPIC, node_sections, topic_config
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("3.9.2", marks=pytest.mark.soak),
        KAFKA_VERSION,
        pytest.param("4.4.0", marks=pytest.mark.soak),
    ],
)
def test_before_the_move_the_broker_tiers_as_with_kafkas_own_class(
    tmp_path: Path, version: str
) -> None:
    broker = KafkaBroker(tmp_path / "broker", version=version)
    for folder in ("tier", "reference"):
        (tmp_path / folder).mkdir()
    broker.format()
    node = NodeProcess(tmp_path / "node", node_sections(tmp_path, broker))

    def bridge() -> dict[str, Any]:
        found: dict[str, Any] = PLAIN.get(f"{node.url}/v1/migration").json()["bridge"] or {}
        return found

    def fill() -> None:
        for _ in range(30):  # a batch is no larger than a segment
            produce(broker.bootstrap, TOPIC, 0, [NewRecord(b"x" * 500) for _ in range(20)])

    def first_local() -> int:
        return int(broker.segment_files(TOPIC, 0)[0].stem)

    try:
        broker.override(of_kafka(tmp_path / "reference") | of_bridge(node.url))
        node.format()
        node.start()
        broker.start()
        broker.wait_until(lambda: bridge().get("seen") == "kafka", "the bridge to hear the phase")
        broker.create_topic(TOPIC, partitions=1, config=topic_config(version))
        fill()
        broker.wait_until(lambda: first_local() > 0, "copies, and local retention")
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        assert [each.offset for each in everything] == list(range(600))
        broker.wait_until(lambda: bridge()["outstanding"] == 0, "its changes to be answered")
        assert bridge()["has_lease"]
        node.kill()
        before = first_local()
        assert consume_all(broker.bootstrap, TOPIC, 0) == everything, "reads need no node"
        node.start()
        fill()
        broker.wait_until(lambda: first_local() > before, "copies to go on")
        assert len(consume_all(broker.bootstrap, TOPIC, 0)) == 1_200
    finally:
        if node.running:
            node.kill()
        broker.close()
