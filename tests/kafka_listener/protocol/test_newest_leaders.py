"""Metadata of brokers that lag behind one another."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.protocol import newest_leaders
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.newest_leaders import NewestLeaders

ID, OTHER = bytes(range(16)), bytes(range(1, 17))


def metadata(
    epoch: int, leader: int, *, topic_id: bytes = ID, brokers: tuple[int, ...] = (7, 9)
) -> dict[str, Any]:
    error = ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    partition = {
        "error_code": error, "partition_index": 3, "leader_id": leader, "leader_epoch": epoch,
        "replica_nodes": [7, 9], "isr_nodes": [7], "offline_replicas": [],
    }  # fmt: skip
    return {
        "brokers": [{"node_id": each} for each in brokers],
        "topics": [{"name": "orders", "topic_id": topic_id, "partitions": [partition]}],
    }


def settled(leaders: NewestLeaders, body: dict[str, Any]) -> tuple[int, int, int]:
    """(epoch, leader, error)"""
    leaders.settle(body)
    (partition,) = body["topics"][0]["partitions"]
    return partition["leader_epoch"], partition["leader_id"], partition["error_code"]


def test_a_broker_that_lags_does_not_bring_the_leader_before_back() -> None:
    leaders = NewestLeaders()
    assert settled(leaders, metadata(5, 9)) == (5, 9, 0)
    assert settled(leaders, metadata(4, 7)) == (5, 9, 0)
    assert settled(leaders, metadata(4, -1)) == (5, 9, 0)
    assert settled(leaders, metadata(6, 7)) == (6, 7, 0)


def test_a_leader_that_the_brokers_do_not_list_is_not_told() -> None:
    leaders = NewestLeaders()
    settled(leaders, metadata(5, 9))
    gone = settled(leaders, metadata(4, 7, brokers=(7,)))
    assert gone == (5, -1, ErrorCode.LEADER_NOT_AVAILABLE)


def test_a_topic_made_anew_begins_anew_and_one_without_an_id_is_left_alone() -> None:
    leaders = NewestLeaders()
    settled(leaders, metadata(5, 9))
    assert settled(leaders, metadata(0, 7, topic_id=OTHER)) == (0, 7, 0)
    settled(leaders, metadata(5, 9, topic_id=bytes(16)))
    assert settled(leaders, metadata(0, 7, topic_id=bytes(16))) == (0, 7, 0)


def test_an_answer_without_epochs_is_left_alone() -> None:
    leaders = NewestLeaders()
    body = metadata(0, 7)
    del body["topics"][0]["partitions"][0]["leader_epoch"]
    leaders.settle(body)
    assert body["topics"][0]["partitions"][0]["leader_id"] == 7


def test_what_is_remembered_is_bounded() -> None:
    leaders = NewestLeaders()
    for number in range(newest_leaders.PARTITIONS_MAX + 10):
        body = metadata(5, 9)
        body["topics"][0]["partitions"][0]["partition_index"] = number
        leaders.settle(body)
    assert len(leaders._told) == newest_leaders.PARTITIONS_MAX


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from((7, 9, -1))), min_size=1))
def test_epochs_only_rise(told: list[tuple[int, int]]) -> None:
    leaders, last = NewestLeaders(), -1
    for epoch, leader in told:
        found, _, _ = settled(leaders, metadata(epoch, leader))
        assert found >= last
        assert found == max(last, epoch)
        last = found
