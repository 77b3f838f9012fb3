"""[LOSS-8] Nodes tiered a topic whose head the broker's retention took, and then the broker is to
tier it: it would delete the tier's part below its log start. It never gets the partition.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.broker_site import TIERED
from tests.e2e.http import PLAIN
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, site, topic_config
from tests.e2e.writer import Writer
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import consume_all, log_bounds

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(300)]

RUNS_S = 6
"""Some ten runs of the broker's tasks."""
WITHOUT = {"local.retention.bytes": "-2", "local.retention.ms": "-2"}


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
def test_a_broker_whose_log_begins_above_the_tier_deletes_nothing_of_it(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version, announced=False) as (broker, node):
        plain = {name: each for name, each in topic_config(version).items() if name not in TIERED}
        broker.create_topic(TOPIC, config=plain)
        tier = TierClient(node.url, TOPIC, 0)
        with Writer(broker.bootstrap, TOPIC, 1):
            broker.wait_until(lambda: tier.status().get("remote_segments", 0) >= 6, "copies")
        broker.alter_topic(TOPIC, {"retention.bytes": "100000"})
        broker.wait_until(lambda: log_bounds(broker.bootstrap, TOPIC, 0)[0] > 0, "retention")
        broker.alter_topic(TOPIC, {"retention.bytes": "-1"})
        time.sleep(RUNS_S)  # a run of the retention may be under way
        start, _ = log_bounds(broker.bootstrap, TOPIC, 0)
        rows, records = tier.segments(), tier.records("read_uncommitted")
        assert rows[0]["start_offset"] == 0 == records[0].offset
        broker.alter_topic(TOPIC, TIERED)
        mode = f"{node.url}/v1/topics/{TOPIC}/partitions/0/mode"
        answer = PLAIN.put(mode, json={"mode": "delegated", "confirm": TOPIC})
        assert answer.status_code == 200, answer.text

        def assert_all_is_there() -> None:
            assert tier.segments() == rows
            assert tier.records("read_uncommitted") == records
            assert log_bounds(broker.bootstrap, TOPIC, 0)[0] == start

        broker.wait_until(
            lambda: "the tier has it from offset" in tier.status()["why_not_text"], "its word"
        )
        assert "read replica" in tier.status()["why_not_text"]
        with Writer(broker.bootstrap, TOPIC, 1):
            time.sleep(RUNS_S)
        assert_all_is_there()
        broker.restart()
        time.sleep(RUNS_S)
        assert_all_is_there()
        assert consume_all(broker.bootstrap, TOPIC, 0)[0].offset == start
        broker.alter_topic(TOPIC, {"remote.log.copy.disable": "true", **WITHOUT})
        broker.alter_topic(
            TOPIC, {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        )
        time.sleep(RUNS_S)
        assert_all_is_there()
