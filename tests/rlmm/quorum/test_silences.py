"""Silence of replicas, by the leader's word."""

from __future__ import annotations

import pytest

from kafka_formats.errors import RetryLater
from rlmm.quorum.silences import Silences, silences_in
from rlmm.raft.messages import DescribeQuorumResponse, Error, ReplicaDescription, ReplicaKey


def replica(node_id: int, last_fetch_ms: int, directory_id: str = "") -> ReplicaDescription:
    return ReplicaDescription(ReplicaKey(node_id, directory_id), 70, last_fetch_ms, -1)


def test_a_leaders_own_fetch_is_now() -> None:
    told = DescribeQuorumResponse(
        Error.NONE,
        leader_id=1,
        leader_epoch=5,
        voters=(replica(1, 9_000), replica(2, 8_990), replica(3, -1)),
        observers=(replica(7, 2_000),),
    )
    assert silences_in(told) == Silences(5, {1: 0, 2: 10, 7: 7_000})


def test_a_node_with_a_new_directory_is_as_loud_as_the_newest() -> None:
    told = DescribeQuorumResponse(
        Error.NONE,
        leader_epoch=5,
        voters=(replica(1, 9_000),),
        observers=(replica(7, 2_000, "old"), replica(7, 8_900, "new"), replica(7, -1, "third")),
    )
    assert silences_in(told).silent_ms == {1: 0, 7: 100}


def test_only_a_leader_knows() -> None:
    with pytest.raises(RetryLater, match="does not lead"):
        silences_in(DescribeQuorumResponse(Error.NOT_LEADER_OR_FOLLOWER))
