"""Records that a node has still to copy, and that local retention took from the leader's disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_listener.reading.first_copy import first_offset_to_copy
from kafka_listener.reading.read_port import FoundOffset, GoToBroker, NotAvailable
from rlm.cluster_settings.known_settings import Setting
from rlm.leadership.leadership import Leads
from rlm.leadership.topic_filter import TopicFilter
from rlmm.partition_state import Mode, PartitionState, TopicPolicy
from rlmm.records.control_records import ClusterSetting, TopicPolicyChange
from rlmm.records.setting_scope import of_topic
from rlmm.segment import PartitionDeleteState
from tests.kafka_listener.reading.tier_client import LEADER, Client
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import claim, state
from tests.rlm.virtual_time import run_virtually

EARLIEST = -2
RECORDED = state(standing=claim(60), log_start=5)
UNRECORDED = replace(state(standing=claim(60), log_start=-1), local_log_start_offset=7)

CASES: dict[str, tuple[PartitionState, int | None]] = {
    "a log start is recorded, and nothing copied": (RECORDED, 5),
    "... and its claim was voided": (replace(RECORDED, claim=None, voided_claim=claim(60)), 5),
    "... and an admin paused the partition": (replace(RECORDED, mode=Mode.PAUSED), 5),
    "it was claimed, and its log start is not recorded yet": (UNRECORDED, 7),
    "... by a claim that does not say where the disk begins": (
        replace(UNRECORDED, local_log_start_offset=-1), None,
    ),
    "... and the claim was voided: the next one says where the disk begins": (
        replace(UNRECORDED, claim=None, voided_claim=claim(60)), None,
    ),
    "only its gaps are known: no node has claimed it": (
        state(lineage=(), log_start=-1), None,
    ),
    "something is copied: the tier says where it begins": (
        state(standing=claim(60), log_start=5, highest=(9, 0)), None,
    ),
    "its broker tiers it, and keeps what is not copied": (
        replace(UNRECORDED, mode=Mode.DELEGATED), None,
    ),
    "nothing is added any more": (replace(RECORDED, mode=Mode.READ_ONLY), None),
    "its tier is to be deleted, so it is not copied": (
        replace(RECORDED, delete_state=PartitionDeleteState.DELETE_PARTITION_MARKED), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_where_the_first_copy_will_begin(case: str) -> None:
    known, expected = CASES[case]
    assert first_offset_to_copy(known, is_disabled=False) == expected
    assert first_offset_to_copy(known, is_disabled=True) is None


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


async def set_tiered(node: Node, value: str) -> None:
    change = ClusterSetting(of_topic("orders"), Setting.TIERED, value, "ann", "a test", -1)
    await node.metadata.set_cluster_setting(change)


def test_a_replica_whose_own_file_names_no_topics_waits_for_them_until_they_are_disabled(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A replica of its own copies nothing, so its file need not name the topics that others do."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        nothing_stable = FakeBroker({("orders", 0): Leads(0, 5)})
        async with world.boot(broker=nothing_stable) as node:
            await node.remote_log.run_once()
            assert node.finished(orders.partition) == []
        async with world.boot(data_plane=True, topics=TopicFilter()) as node:
            client = Client(node, orders.partition)
            port, tip = client.port, orders.partition
            assert await port.list_offsets(tip, EARLIEST, LEADER) == FoundOffset(-1, 0, 0)
            assert isinstance((await client.fetch(0))[0], NotAvailable)

            await set_tiered(node, "false")
            assert port.ends(tip) is None
            assert await port.list_offsets(tip, EARLIEST, LEADER) is None
            assert (await client.fetch(0))[0] == GoToBroker(0)

    run_virtually(main)


def test_records_that_are_not_copied_since_copying_is_paused_are_waited_for(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A pause leaves a new partition without a recorded log start, and its segments are held."""

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            client, tip = Client(node, orders.partition), orders.partition
            at = await node.metadata.set_topic_policy(
                TopicPolicyChange("orders", TopicPolicy(copy_paused=True), -1)
            )
            await node.remote_log.run_once()
            known = node.metadata.partition_state(tip)
            assert known is not None
            assert (known.log_start_offset, known.claim is None) == (-1, False)
            assert await client.port.list_offsets(tip, EARLIEST, LEADER) == FoundOffset(-1, 0, 0)
            assert isinstance((await client.fetch(0))[0], NotAvailable)
            assert (await client.fetch(20))[0] == GoToBroker(20)
            with pytest.raises(RetryLater):
                await client.port.list_offsets(tip, TIMESTAMP_MS + 5, LEADER)
            has_all = replace(LEADER, local_log_start_offset=0)
            assert await client.port.list_offsets(tip, EARLIEST, has_all) is None

            change = TopicPolicyChange("orders", TopicPolicy(), at)
            await node.metadata.set_topic_policy(change)
            await node.remote_log.run_once()
            assert await client.port.list_offsets(tip, EARLIEST, LEADER) == FoundOffset(-1, 0, 0)
            assert (await client.scan(0))[1] == GoToBroker(30)

    run_virtually(main)
