"""Readiness of a node, as /readyz answers it. Pure.

A ready node accepts writes, and its reads are not old. No part of the node asks for it: without a
leader, reads are still answered from the view, and a partition that could be wrong about *nothing
there* says so itself (`rlmm/manager/readiness.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rlm.control.node_problem import NodeProblem, ProblemArea
from rlmm.metadata_log import LogDescription
from strandline.settings.settings import QuorumSettings


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """State of a node at one moment. `failure`: the reason why it is about to stop."""

    failure: str | None
    caught_up_since_start: bool
    log: LogDescription
    applied_offset: int
    now_ms: int


def missing_until_ready(facts: NodeFacts, settings: QuorumSettings) -> list[str]:
    """Missing conditions, each with what to do about it; empty when the node is ready."""
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
    """Problems of the quorum, and of the replica itself by name. A node that started within
    `quorum.ready_silence_max_s` and still looks for its leader is no problem.
    """
    own = tuple(NodeProblem(ProblemArea.QUORUM, name, text) for name, text in log.troubles)
    if log.leader_heard_ms < 0 and up_ms < settings.ready_silence_max_s * 1_000:
        return own
    missing = missing_until_ready(NodeFacts(None, True, log, applied_offset, now_ms), settings)
    if not missing:
        return own
    return (NodeProblem(ProblemArea.QUORUM, None, "; ".join(missing)), *own)


def _leader_missing(facts: NodeFacts, settings: QuorumSettings) -> str | None:
    """A reason if no leader was heard for long; a mere change of leader is no reason."""
    if facts.log.state == "leader":
        return None
    if facts.log.leader_heard_ms < 0:
        return (
            "no leader of the metadata quorum answered since the start: a majority of the voters "
            "has to run and reach each other"
        )
    silent_s = (facts.now_ms - facts.log.leader_heard_ms) / 1_000
    if silent_s <= settings.ready_silence_max_s:
        return None
    return (
        f"no leader of the metadata quorum answered for {silent_s:.0f} s "
        f"(quorum.ready_silence_max_s is {settings.ready_silence_max_s:g}): reads are answered, "
        "changes wait. Bring back a majority of the voters"
    )


def _start_missing(facts: NodeFacts) -> str | None:
    if facts.caught_up_since_start:
        return None
    return "not everything that was committed before the start is applied here yet"


def _lag(facts: NodeFacts, settings: QuorumSettings) -> str | None:
    """A reason if the view lags behind the leader's high watermark, which this node's own log may
    not have reached.
    """
    committed = max(facts.log.leader_high_watermark, facts.log.high_watermark)
    lag = committed - 1 - facts.applied_offset
    if lag <= settings.ready_lag_max:
        return None
    return (
        f"{lag} committed offsets are not applied here yet (quorum.ready_lag_max is "
        f"{settings.ready_lag_max}): it catches up by itself"
    )
