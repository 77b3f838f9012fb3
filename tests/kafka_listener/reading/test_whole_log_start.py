"""The leader's log start, which counts where the brokers tier the partition themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_listener.reading.read_port import (
    BrokerLogEnds,
    FoundOffset,
    GoToBroker,
    LostOffsets,
    NotAvailable,
    OutOfRange,
    TierPart,
)
from kafka_listener.reading.whole_log_start import gap_below_log_start, whole_log_start
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import LogStart, PartitionClaim, PartitionModeChange
from rlmm.segment import RemoteLogSegmentMetadata
from tests.kafka_listener.reading.tier_client import LEADER, Client, with_node
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node
from tests.rlm.planner_facts import claim, epochs, segment_row, state

SET_AT, CLAIMED_AT = 50, 60
TIERED = replace(
    state(mode=Mode.DELEGATED, standing=claim(CLAIMED_AT), highest=(99, 0)), mode_offset=SET_AT
)
"""A partition that its broker tiers, through a node's claim."""
UNCLAIMED = replace(TIERED, claim=None, voided_claim=claim(SET_AT - 1))
BY_BROKER = replace(segment_row(1, 0, 49), token=CLAIMED_AT, upload_deadline_ms=1)
OLDER = replace(BY_BROKER, token=SET_AT - 1)
RETENTION = BrokerLogEnds(0, 80, 150, 150, log_start_offset=60)
NOTHING_TIERED_YET = replace(RETENTION, local_log_start_offset=60)

CASES: dict[str, tuple[PartitionState, BrokerLogEnds | None, RemoteLogSegmentMetadata, bool]] = {
    "retention runs on the disk of a broker that does not tier": (
        replace(state(), mode_offset=SET_AT), NOTHING_TIERED_YET, OLDER, False,
    ),
    "... between its two answers": (
        state(), replace(RETENTION, local_log_start_offset=50), OLDER, False,
    ),
    "the mode was changed back, and the broker still tiers": (
        replace(TIERED, mode=Mode.SIDECAR), RETENTION, BY_BROKER, False,
    ),
    "copying is paused in a partition that brokers tiered": (
        replace(TIERED, mode=Mode.PAUSED), RETENTION, BY_BROKER, False,
    ),
    "brokers tier it": (TIERED, RETENTION, BY_BROKER, True),
    "brokers tier it, and records were deleted into the leader's disk": (
        TIERED, NOTHING_TIERED_YET, BY_BROKER, True,
    ),
    "... before the tier was started anew from a snapshot": (
        replace(TIERED, claim=None, voided_claim=claim(CLAIMED_AT)),
        NOTHING_TIERED_YET, BY_BROKER, True,
    ),
    "brokers tier it as ever: the tier's start is the leader's": (
        TIERED, replace(RETENTION, log_start_offset=0), BY_BROKER, False,
    ),
    "the mode was set, and nobody claimed yet": (UNCLAIMED, NOTHING_TIERED_YET, OLDER, False),
    "... or ever: the broker's disk begins above the tier": (
        UNCLAIMED, RETENTION, OLDER, False,
    ),
    "brokers tier it, and a leader lacks what nodes tiered before": (
        TIERED, NOTHING_TIERED_YET, OLDER, False,
    ),
    "... and has freed its disk": (TIERED, RETENTION, OLDER, False),
    "... until its log start passed that while it led": (
        replace(TIERED, log_start_offset=50), RETENTION, OLDER, True,
    ),
    "records were deleted in the middle of such a segment": (
        TIERED, replace(RETENTION, log_start_offset=30), OLDER, True,
    ),
    "no leader was heard of": (TIERED, None, BY_BROKER, False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_leaders_log_start_counts(name: str) -> None:
    of, broker, oldest, counts = CASES[name]
    found = whole_log_start(of, 0, broker, lambda: oldest)
    assert found == (broker.log_start_offset if broker and counts else None)


GONE = "the brokers tier this partition themselves, and the leader's log starts at 60"


@pytest.mark.parametrize(
    ("of", "broker", "next_served", "gone"),
    [
        (TIERED, RETENTION, None, (50, 59)),
        (TIERED, RETENTION, 55, (50, 54)),
        (TIERED, RETENTION, 70, (50, 59)),
        (TIERED, RETENTION, 50, None),
        (TIERED, replace(RETENTION, log_start_offset=50), None, None),
        (TIERED, None, None, None),
        (UNCLAIMED, RETENTION, None, None),
        (state(), RETENTION, None, None),
    ],
)
def test_what_the_tier_lacks_below_the_log_start_of_brokers_that_tier_is_gone(
    of: PartitionState,
    broker: BrokerLogEnds | None,
    next_served: int | None,
    gone: tuple[int, int] | None,
) -> None:
    found = gap_below_log_start(of, broker, 50, next_served)
    assert found == (LostOffsets(*gone, GONE) if gone else None)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


async def given_to_the_broker(node: Node, orders: KafkaLog) -> None:
    """The mode is set, and the broker's node has claimed."""
    tip = orders.partition
    before = node.metadata.partition_state(tip)
    assert before is not None
    assert before.claim is not None
    await node.metadata.set_partition_mode(
        PartitionModeChange(tip, Mode.DELEGATED, before.mode_offset)
    )
    me = before.claim.incarnation
    await node.metadata.claim_partition(
        PartitionClaim(tip, Mode.DELEGATED, 1, me, 99, epochs((0, 0), (1, 35)))
    )


def test_what_brokers_deleted_is_neither_read_nor_found(tmp_path: Path, orders: KafkaLog) -> None:
    async def check(node: Node) -> None:
        tip, client = orders.partition, Client(node, orders.partition)
        leader = replace(LEADER, leader_epoch=1, log_start_offset=5)
        raced = replace(LEADER, log_start_offset=25)
        assert isinstance((await client.fetch(3, raced))[0], TierPart)
        assert await client.port.list_offsets(tip, -2, raced) == FoundOffset(-1, 0, 0)
        await given_to_the_broker(node, orders)
        assert (await client.fetch(3, leader))[0] == OutOfRange(5)
        for timestamp in (-2, 0):
            found = await client.port.list_offsets(tip, timestamp, leader)
            assert found is not None
            assert found.offset == 5
        lacks_the_head = replace(leader, log_start_offset=25)
        assert isinstance((await client.fetch(3, lacks_the_head))[0], TierPart)
        assert await client.port.list_offsets(tip, -2, lacks_the_head) == FoundOffset(-1, 0, 0)
        claimed = node.metadata.partition_state(tip)
        assert claimed is not None
        assert claimed.claim is not None
        await node.metadata.record_log_start(LogStart(tip, claimed.claim.token, 0, 25))
        assert (await client.fetch(3, lacks_the_head))[0] == OutOfRange(25)

    with_node(tmp_path, orders, check)


def test_behind_what_nodes_tiered_the_rest_below_the_log_start_is_gone(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A consumer that stood there would wait for good: nobody copies it, or records it as lost."""

    async def check(node: Node) -> None:
        client = Client(node, orders.partition)
        above = replace(
            LEADER, leader_epoch=1, local_log_start_offset=50, log_start_offset=50,
            high_watermark=60, last_stable_offset=60,
        )  # fmt: skip
        end = client.port.ends(orders.partition)
        assert end is not None
        assert isinstance((await client.fetch(end.end_offset, above))[0], NotAvailable)
        await given_to_the_broker(node, orders)
        assert isinstance((await client.fetch(3, above))[0], TierPart)
        gone = (await client.fetch(end.end_offset, above))[0]
        assert isinstance(gone, LostOffsets)
        assert (gone.start, gone.next_offset) == (end.end_offset, 50)
        assert (await client.fetch(50, above))[0] == GoToBroker(50)

    with_node(tmp_path, orders, check)


def test_a_mode_that_an_old_view_has_is_not_believed(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that tier no more drop what the tier keeps, and their log start tells of it."""

    async def check(node: Node) -> None:
        tip, client = orders.partition, Client(node, orders.partition)
        await given_to_the_broker(node, orders)
        old = node.metadata.partition_state(tip)
        assert old is not None
        back = PartitionModeChange(tip, Mode.SIDECAR, old.mode_offset)
        await node.metadata.set_partition_mode(back)
        new = node.metadata.partition_state(tip)
        leader = replace(LEADER, leader_epoch=1, log_start_offset=5)
        seen = [old]

        async def catch_up(*, deadline_s: float) -> None:
            seen[:] = [new] if new is not None else []

        monkeypatch.setattr(node.metadata, "partition_state", lambda _tip: seen[0])
        monkeypatch.setattr(node.metadata, "catch_up", catch_up)
        client.log.epochs, client.log.end = epochs((0, 0), (1, 35)), 35
        assert isinstance((await client.fetch(3, leader))[0], TierPart)
        seen[:] = [old]
        assert await client.port.list_offsets(tip, -2, leader) == FoundOffset(-1, 0, 0)

    with_node(tmp_path, orders, check)
