"""Voters without a broker come to lead a quorum whose third one moves with its stock broker: by the
commands of docs/OPERATIONS.md, on whole nodes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.migrating_broker import of_bridge, of_kafka
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.test_move import Moved
from tests.e2e.tiering_broker import TOPIC, node_sections, topic_config
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(420)]


def waiting(quorum: NodeQuorum) -> set[float]:
    """Changes that are not known to be in the topic, by the metrics of each node."""
    name = "strandline_shadow_lag_records "
    pages = [PLAIN.get(f"{node.url}/metrics").text.splitlines() for node in quorum.nodes.values()]
    return {
        float(line.removeprefix(name)) for page in pages for line in page if line.startswith(name)
    }


def test_voters_without_a_broker_let_the_one_beside_it_carry_the_move(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "broker", version=KAFKA_VERSION)
    for each in ("tier", "kafkas"):
        (tmp_path / each).mkdir()
    sections = node_sections(tmp_path, broker)
    kafka = {f"{broker.node_id}": {**sections.pop("kafka"), "broker": broker.bootstrap}}
    broker.format()
    broker.override(of_kafka(tmp_path / "kafkas"))
    try:
        broker.start()
        with NodeQuorum(tmp_path, broker.cluster_id, sections, kafka) as quorum:
            beside = broker.node_id
            site = Moved(broker, quorum.nodes[beside])
            others = sorted(quorum.nodes.keys() - {beside})
            broker.create_topic(TOPIC, config=topic_config(KAFKA_VERSION))
            site.write_until_tiered()
            quorum.operate("finalize", 2)
            site.command("migrate", "start", "--why", "a test")
            broker.restart(overrides=of_bridge(site.node.url))
            site.wait_until_nothing_is_in_the_way()
            refused = invoke("migrate", "switch", "--url", quorum.nodes[others[0]].url)
            assert refused.exit_code == ExitCode.CONFLICT
            assert "no broker to ask" in refused.stderr

            quorum.transfer_to(others[0])
            site.command("migrate", "switch", "--report", tmp_path / "switch.json")
            assert json.loads((tmp_path / "switch.json").read_text())["phase"] == "quorum"
            assert quorum.leader() == beside

            quorum.operate("transfer", others[1])
            site.write_until_tiered()
            quorum.wait_until(lambda: waiting(quorum) == {0.0}, "the topic to have all of it")
            assert quorum.leader() == beside
            site.wait_until_all_is_tiered()
            site.command("migrate", "back")
            site.has_what_kafkas_manager_has(tmp_path / "behind the way back")
    finally:
        broker.close()
