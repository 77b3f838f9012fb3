"""/readyz of a node at every point of its life in a quorum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.metadata_log import LogDescription
from strandline.node.readiness import NodeFacts, missing_until_ready, quorum_problems
from strandline.settings.settings import QuorumSettings

SETTINGS = QuorumSettings(ready_silence_max_s=10, ready_lag_max=100)
NOW_MS = 1_000_000
FOLLOWS = LogDescription(
    cluster_id="cluster",
    node_id=1,
    leader_id=2,
    leader_epoch=7,
    high_watermark=501,
    log_start_offset=0,
    log_end_offset=501,
    voters=(),
    observers=(),
    state="follower",
    leader_heard_ms=NOW_MS - 400,
    leader_high_watermark=501,
)
READY = NodeFacts(None, True, FOLLOWS, applied_offset=500, now_ms=NOW_MS)


def missing(facts: NodeFacts, **log: object) -> list[str]:
    return missing_until_ready(replace(facts, log=replace(facts.log, **log)), SETTINGS)  # type: ignore[arg-type]  # names of LogDescription's own fields


@pytest.mark.parametrize("state", ["leader", "follower", "observer"])
def test_a_node_that_leads_or_follows_and_keeps_up_is_ready(state: str) -> None:
    assert missing(READY, state=state) == []


def test_a_change_of_leader_is_no_reason_and_a_lost_majority_is() -> None:
    for state in ("follower", "prospective", "candidate", "unattached", "resigned"):
        assert missing(READY, state=state, leader_heard_ms=NOW_MS - 10_000) == []
        (reason,) = missing(READY, state=state, leader_heard_ms=NOW_MS - 10_001)
        assert "for 10 s (quorum.ready_silence_max_s is 10)" in reason
        assert "reads are answered" in reason
        assert "Bring back a majority" in reason


def test_a_leader_hears_nobody_and_is_ready() -> None:
    assert missing(READY, state="leader", leader_heard_ms=-1) == []


def test_a_node_that_heard_nobody_since_its_start_is_not_ready() -> None:
    (reason,) = missing(READY, state="unattached", leader_heard_ms=-1, leader_high_watermark=-1)
    assert "since the start" in reason


def test_until_the_barrier_of_the_start_is_applied_a_node_is_not_ready() -> None:
    (reason,) = missing_until_ready(replace(READY, caught_up_since_start=False), SETTINGS)
    assert "before the start" in reason


def test_a_view_that_lags_is_not_ready_even_if_it_has_all_of_its_own_log() -> None:
    assert missing(READY, leader_high_watermark=601) == []
    (reason,) = missing(READY, leader_high_watermark=602)
    assert reason.startswith("101 committed offsets are not applied here yet")
    (own,) = missing(replace(READY, applied_offset=0), leader_high_watermark=-1)
    assert own.startswith("500 committed offsets")


def test_a_node_that_failed_says_only_that() -> None:
    failed = replace(READY, failure="the disk is full", caught_up_since_start=False)
    assert missing(failed, leader_heard_ms=-1) == ["the node stops: the disk is full"]


def test_a_lost_majority_is_a_problem_of_the_node_and_a_start_is_none() -> None:
    def told(up_s: float, **log: object) -> list[str]:
        described = replace(FOLLOWS, **log)  # type: ignore[arg-type]  # names of its own fields
        problems = quorum_problems(
            described, 500, SETTINGS, now_ms=NOW_MS, up_ms=round(up_s * 1_000)
        )
        return [f"{each.area.value}: {each.text}" for each in problems]

    assert told(100) == []
    assert told(9, state="unattached", leader_heard_ms=-1) == []
    (text,) = told(11, state="unattached", leader_heard_ms=-1)
    assert text.startswith("quorum: no leader of the metadata quorum has answered since the start")
    (text,) = told(11, state="prospective", leader_heard_ms=NOW_MS - 12_000)
    assert text.startswith("quorum: no leader of the metadata quorum has answered for 12 s")


def test_what_the_replica_has_trouble_with_is_a_problem_of_the_node_by_its_name() -> None:
    troubled = replace(FOLLOWS, troubles=(("another_quorum", "node 2 leads"), ("clients", "wait")))
    for log, up_ms in ((troubled, 0), (replace(troubled, leader_heard_ms=-1), 0)):
        problems = quorum_problems(log, 500, SETTINGS, now_ms=NOW_MS, up_ms=up_ms)
        told = [(each.area.value, each.name, each.text) for each in problems]
        assert told == [("quorum", "another_quorum", "node 2 leads"), ("quorum", "clients", "wait")]
    lost = replace(troubled, leader_heard_ms=NOW_MS - 12_000)
    problems = quorum_problems(lost, 500, SETTINGS, now_ms=NOW_MS, up_ms=100_000)
    assert [each.name for each in problems] == [None, "another_quorum", "clients"]
