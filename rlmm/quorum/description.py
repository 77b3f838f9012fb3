"""A replica's description of itself and the other replicas, for display and metrics. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlmm.log.quorum_records import Endpoint
from rlmm.metadata_log import LogDescription, ReplicaState
from rlmm.raft.actions import Role
from rlmm.raft.core import RaftCore
from rlmm.raft.damaged_tail import NO_MEMORY
from rlmm.raft.messages import ReplicaDescription, VoterSet

STOPPED = "stopped"
"""The state of a log that failed or was closed; all other states are KRaft's."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts that the core does not have. `clock_ahead_ms`: time of day minus the core's clock."""

    cluster_id: str
    listener_name: str
    high_watermark: int
    log_start_offset: int
    clock_ahead_ms: int
    stopped: bool
    troubles: tuple[tuple[str, str], ...] = ()


def describe(core: RaftCore, around: Surroundings) -> LogDescription:
    """The description; the progress of other replicas is known to the leader only."""
    known = core.describe()
    at = {
        node_id: f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for node_id, (host, port) in addresses(core.voters, around.listener_name).items()
    }
    unknown = tuple(ReplicaDescription(key, -1, -1, -1) for key in core.voters.keys)
    return LogDescription(
        cluster_id=around.cluster_id,
        node_id=core.replica.key.node_id,
        leader_id=-1 if around.stopped else _leader_followed(core),
        leader_epoch=core.epoch,
        high_watermark=around.high_watermark,
        log_start_offset=around.log_start_offset,
        log_end_offset=core.log_end_offset,
        voters=_states(known.voters or unknown, at, around.clock_ahead_ms),
        observers=_states(known.observers, {}, around.clock_ahead_ms),
        state=STOPPED if around.stopped else _state(core),
        uncommitted_voter_change=core.uncommitted_voter_change,
        cut_end_offset=-1 if core.cut in (None, NO_MEMORY) else core.cut.old_end_offset,
        remembers_nothing=core.cut == NO_MEMORY,
        leader_heard_ms=_time_of_day(core.leader_heard_ms, around.clock_ahead_ms),
        leader_high_watermark=core.leader_high_watermark,
        log_end_epoch=core.replica.log.last_epoch,
        troubles=around.troubles,
        voted_id=-1 if (voted := core.replica.state.voted) is None else voted.node_id,
    )


def _leader_followed(core: RaftCore) -> int:
    """The leader; -1 once the fetch timeout has passed: the recorded leader may be dead. A voter
    that loses its pre-votes returns to following that leader again and again, without an answer.
    """
    if core.role is Role.LEADER:
        return core.leader_id
    replica = core.replica
    silent_ms = replica.now - max(core.leader_heard_ms, 0)
    heard = silent_ms <= replica.settings.fetch_timeout_ms
    return core.leader_id if core.role is Role.FOLLOWER and heard else -1


def _state(core: RaftCore) -> str:
    """Kafka's `current-state`: a follower without a vote is an observer."""
    if core.role is Role.FOLLOWER and not core.is_voter:
        return "observer"
    return core.role.value


def _states(
    replicas: Sequence[ReplicaDescription], at: dict[int, str], clock_ahead_ms: int
) -> tuple[ReplicaState, ...]:
    return tuple(
        ReplicaState(
            each.key.node_id,
            each.key.directory_id,
            each.log_end_offset,
            _time_of_day(each.last_fetch_ms, clock_ahead_ms),
            _time_of_day(each.last_caught_up_ms, clock_ahead_ms),
            at.get(each.key.node_id, ""),
        )
        for each in replicas
    )


def _time_of_day(core_ms: int, clock_ahead_ms: int) -> int:
    return core_ms + clock_ahead_ms if core_ms >= 0 else -1


def addresses(voters: VoterSet, listener_name: str) -> dict[int, tuple[str, int]]:
    """The address of each voter; its first endpoint if none has the name."""
    found: dict[int, tuple[str, int]] = {}
    for voter in voters.voters:
        endpoints = [each for each in voter.endpoints if isinstance(each, Endpoint)]
        named = [each for each in endpoints if each.name == listener_name] or endpoints
        if named:
            found[voter.key.node_id] = (named[0].host, named[0].port)
    return found
