"""Records that nobody writes behind: a stock broker's retention by time rolls and removes the
active segment in one step.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rlm.copy.active_hold import ActiveHold
from rlm.copy.hold_pass import Order, Orders, Passed
from rlm.local_log.hold_dirs import hold_directories
from rlm.local_log.hold_plan import HoldFacts, Unit
from rlm.local_log.log_dir import LocalPartition, find_partitions
from tests.e2e.node_process import NodeProcess, Sections
from tests.e2e.tier_client import TierClient
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, produce

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

TOPIC = "orders"
CONFIG = {"retention.ms": "8000", "file.delete.delay.ms": "1000"}


def look_at(broker: KafkaBroker) -> LocalPartition:
    found = find_partitions([broker.log_dir], kafka_cluster_id=None).partitions
    return next(each for each in found if each.partition.topic == TOPIC)


def test_a_link_that_was_made_before_has_what_retention_took_of_a_quiet_partition(
    tmp_path: Path,
) -> None:
    (tmp_path / "hold").mkdir()
    with KafkaBroker(tmp_path / "kafka") as broker:
        broker.create_topic(TOPIC, partitions=1, config=CONFIG)
        produce(broker.bootstrap, TOPIC, 0, [NewRecord(b"v%d" % number) for number in range(100)])
        (directory,) = hold_directories([tmp_path / "hold"], [broker.log_dir], own_name="held")
        directory.prepare()
        active, held, passed = ActiveHold(directory), list[Unit](), Passed()

        def look() -> LocalPartition:
            local = look_at(broker)
            facts = HoldFacts(local.segments, local.leader_epochs, 100, -1, (), False, False)
            led = local.leader_epochs[-1].epoch
            order = Order(local, facts, None, led, is_heard=True, is_delegated=False)
            active.look(Orders({local.partition: order}, frozenset()), held, passed)
            return local

        assert [each.base_offset for each in look().segments] == [0]
        file = broker.segment_files(TOPIC, 0)[0]
        broker.wait_until(lambda: not file.exists(), "retention")
        broker.wait_until(lambda: look().segments[0].base_offset == 100, "the log to begin at 100")
        assert passed.error is None
        (unit,) = held
        assert (unit.base_offset, unit.next_base_offset, unit.doubt) == (0, 100, None)
        assert unit.segment.log_path.parent.parent.parent.parent == directory.path


def test_the_records_of_a_quiet_partition_reach_the_tier_by_default(tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    with KafkaBroker(tmp_path / "kafka") as broker:
        broker.create_topic(TOPIC, partitions=1, config=CONFIG)
        settings: Sections = {
            "kafka": {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap},
            "topics": {"include": [TOPIC]},
            "stores.main": {"kind": "filesystem", "path": str(tmp_path / "tier")},
            "copier": {"interval_s": 0.3},
            "hold": {"free_bytes_min": 1},  # whatever this machine has
        }
        with NodeProcess(tmp_path / "node", settings) as node:
            produce(broker.bootstrap, TOPIC, 0, [NewRecord(b"v%d" % each) for each in range(100)])
            tier = TierClient(node.url, TOPIC, 0)
            node.wait_until(
                lambda: tier.status().get("highest_copied_offset") == 99,
                "a copy of what retention took",
                deadline_s=100,
            )
            assert [each.value for each in tier.records("read_uncommitted")] == [
                b"v%d" % each for each in range(100)
            ]
