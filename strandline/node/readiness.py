"""Readiness of a node, for /readyz. Pure.

A ready node accepts writes, and its reads are not stale. No part of the node depends on it: without
a leader, reads are still answered from the view, and a partition for which the answer "no such
segment" could be wrong refuses by itself (`rlmm/manager/readiness.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rlm.control.node_problem import NodeProblem, ProblemArea
from rlmm.metadata_log import LogDescription
from strandline.settings.settings import QuorumSettings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The state of a node at one moment. `failure` is the reason why it is about to stop, or
    None.
    """

    failure: str | None
    caught_up_since_start: bool
    log: LogDescription
    applied_offset: int
    now_ms: int


def missing_until_ready(facts: NodeFacts, settings: QuorumSettings) -> list[str]:
    """The conditions that are missing, each with what to do about it; empty if the node is
    ready.
    """
    if facts.failure is not None:
        return [f"the node stops: {facts.failure}"]
    missing = [
        _leader_missing(facts, settings),
        _start_missing(facts),
        _lag(facts, settings),
    ]
    return [each for each in missing if each is not None]


def quorum_problems(
    log: LogDescription, applied_offset: int, settings: QuorumSettings, *, now_ms: int, up_ms: int
) -> tuple[NodeProblem, ...]:
    """The problems of the quorum, and those of this node's replica by name. A missing leader is no
    problem until `quorum.ready_silence_max_s` after the start.
    """
    own = tuple(NodeProblem(ProblemArea.QUORUM, name, text) for name, text in log.troubles)
    if log.leader_heard_ms < 0 and up_ms < settings.ready_silence_max_s * 1_000:
        return own
    missing = missing_until_ready(NodeFacts(None, True, log, applied_offset, now_ms), settings)
    if not missing:
        return own
    return (NodeProblem(ProblemArea.QUORUM, None, "; ".join(missing)), *own)


def _leader_missing(facts: NodeFacts, settings: QuorumSettings) -> str | None:
    """The reason if no leader has answered for `quorum.ready_silence_max_s`; None during a short
    change of leader.
    """
    if facts.log.state == "leader":
        return None
    if facts.log.leader_heard_ms < 0:
        return (
            "no leader of the metadata quorum has answered since the start: start a majority of "
            "the voters, and let them reach each other"
        )
    silent_s = (facts.now_ms - facts.log.leader_heard_ms) / 1_000
    if silent_s <= settings.ready_silence_max_s:
        return None
    return (
        f"no leader of the metadata quorum has answered for {silent_s:.0f} s "
        f"(quorum.ready_silence_max_s is {settings.ready_silence_max_s:g}): reads are answered, "
        "changes wait. Bring back a majority of the voters"
    )


def _start_missing(facts: NodeFacts) -> str | None:
    if facts.caught_up_since_start:
        return None
    return (
        "records committed before the start are not all applied here yet: the node catches up by "
        "itself"
    )


def _lag(facts: NodeFacts, settings: QuorumSettings) -> str | None:
    """The reason if the view lags behind the leader's high watermark, which may be above the end of
    this node's own log.
    """
    committed = max(facts.log.leader_high_watermark, facts.log.high_watermark)
    lag = committed - 1 - facts.applied_offset
    if lag <= settings.ready_lag_max:
        return None
    return (
        f"{lag} committed offsets are not applied here yet (quorum.ready_lag_max is "
        f"{settings.ready_lag_max}): the node catches up by itself"
    )
