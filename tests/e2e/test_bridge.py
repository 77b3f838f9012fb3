"""A stock broker with the bridge and Kafka's reference storage, and the node beside it: until the
move Kafka's own metadata topic has the truth, as with Kafka's own class.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rlm.migration.acknowledgements import LEASE_S
from tests.e2e.http import PLAIN
from tests.e2e.migrating_broker import of_bridge, of_kafka
from tests.e2e.node_process import NodeProcess
from tests.e2e.tiering_broker import TOPIC, node_sections, topic_config
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
RECORDS, RECORD_BYTES = 600, 500
RUNS_S = 5.0
"""Ten runs of a task."""
OLD = "3.9.2"


class Bridged:
    """A broker with the bridge, and the node beside it."""

    def __init__(self, tmp_path: Path, version: str) -> None:
        self.broker = KafkaBroker(tmp_path / "broker", version=version)
        for folder in ("tier", "reference"):
            (tmp_path / folder).mkdir()
        self.broker.format()
        self.node = NodeProcess(tmp_path / "node", node_sections(tmp_path, self.broker))
        self.broker.override(of_kafka(tmp_path / "reference") | of_bridge(self.node.url))
        self.log = tmp_path / "broker" / "server.log"

    def __enter__(self) -> Bridged:
        self.node.format()
        self.node.start()
        self.broker.start()
        heard = "the bridge to hear the phase"
        self.broker.wait_until(lambda: self.bridge().get("seen") == "kafka", heard)
        return self

    def __exit__(self, *_: object) -> None:
        if self.node.running:
            self.node.kill()
        self.broker.close()

    def bridge(self) -> dict[str, Any]:
        found: dict[str, Any] = PLAIN.get(f"{self.node.url}/v1/migration").json()["bridge"] or {}
        return found

    def fill(self) -> None:
        for _ in range(RECORDS // 20):  # a batch is no larger than a segment
            batch = [NewRecord(b"x" * RECORD_BYTES) for _ in range(20)]
            produce(self.broker.bootstrap, TOPIC, 0, batch)

    def first_local(self) -> int:
        return int(self.broker.segment_files(TOPIC, 0)[0].stem)

    def offsets(self) -> list[int]:
        """All that a consumer reads."""
        return [each.offset for each in consume_all(self.broker.bootstrap, TOPIC, 0)]


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(OLD, marks=pytest.mark.soak),
        KAFKA_VERSION,
        pytest.param("4.4.0", marks=pytest.mark.soak),
    ],
)
def test_before_the_move_the_broker_tiers_as_with_kafkas_own_class(
    tmp_path: Path, version: str
) -> None:
    with Bridged(tmp_path, version) as site:
        broker, node = site.broker, site.node
        broker.create_topic(TOPIC, partitions=1, config=topic_config(version))
        site.fill()
        broker.wait_until(lambda: site.first_local() > 0, "copies, and local retention")
        everything = consume_all(broker.bootstrap, TOPIC, 0)
        assert [each.offset for each in everything] == list(range(RECORDS))
        broker.wait_until(lambda: site.bridge()["outstanding"] == 0, "its changes to be answered")
        assert site.bridge()["has_lease"]
        node.kill()
        before = site.first_local()
        assert consume_all(broker.bootstrap, TOPIC, 0) == everything, "reads need no node"
        node.start()
        site.fill()
        broker.wait_until(lambda: site.first_local() > before, "copies to go on")
        assert len(consume_all(broker.bootstrap, TOPIC, 0)) == 2 * RECORDS


@pytest.mark.soak
def test_an_old_broker_expires_nothing_while_the_node_is_away(tmp_path: Path) -> None:
    """One before 4.0 does not ask if it may run: its log start went up to the end of the tier."""
    kept = RECORDS * RECORD_BYTES // 2
    with Bridged(tmp_path, OLD) as site:
        broker, node = site.broker, site.node
        broker.create_topic(TOPIC, partitions=1, config=topic_config(OLD))
        site.fill()
        broker.wait_until(lambda: site.first_local() > 0, "copies, and local retention")
        node.kill()
        passes(broker, LEASE_S + 2, "the bridge's lease to lapse")
        broker.alter_topic(TOPIC, {"retention.bytes": str(kept)})
        passes(broker, RUNS_S, "runs of its tasks")
        assert site.offsets() == list(range(RECORDS))
        node.start()
        broker.wait_until(lambda: site.offsets()[0] > 0, "the expiration to go on")
        passes(broker, RUNS_S, "more of them")
        assert len(site.offsets()) * RECORD_BYTES > kept / 2


def passes(broker: KafkaBroker, seconds: float, what: str) -> None:
    """Time, which is all that such a broker's log tells of these runs."""
    until = time.monotonic() + seconds
    broker.wait_until(lambda: time.monotonic() >= until, what)
