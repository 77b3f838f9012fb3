"""A partition's status page: role, offsets, lag, trouble. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import BackOff, FailureKind
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.lag import Lag, TimedSegment, answers_for_lag, lag
from rlm.leadership.leadership import OwnClaim
from rlmm.partition_state import LostOffsets, Mode, PartitionState
from rlmm.segment import PartitionDeleteState, RemoteLogSegmentId


class Role(StrEnum):
    """This node's role for the partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    REMOTE_ONLY = "remote_only"
    NOT_TIERED = "not_tiered"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CopyUnderWay:
    """The one copy in flight; `end_offset` is inclusive."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error; kept until a copy succeeds. `kind` as in errors.py."""

    kind: str
    text: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class LocalFacts:
    """The last scan's facts from disk; `segments` with those held."""

    segments: Sequence[TimedSegment]
    checkpoint: Epochs
    log_start_offset: int
    high_watermark: int | None


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition on this node. Unknown offsets and epochs are -1.

    `highest_copied_offset` is inclusive. `why_not_copying` is None only during a copy. `lag` is
    None if it is reported by another node, or by none. `local_bytes`: of the `.log` files on this
    machine, held ones included; None without a replica. `trash_bytes`: the part of `remote_bytes`
    that an expiry mark hides from readers. `blocked` is a sentence while a corrupt segment stops
    the partition.
    """

    partition: TopicIdPartition
    role: Role
    mode: Mode
    delete_state: PartitionDeleteState | None
    leader_epoch: int
    claim_token: int
    claimed_by_node: int
    local_log_start_offset: int
    active_base_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    highest_copied_offset: int
    highest_copied_epoch: int
    next_offset: int
    lag: Lag | None
    local_bytes: int | None
    remote_segments: int
    remote_bytes: int
    trash_bytes: int
    lost_ranges: tuple[LostOffsets, ...]
    why_not_copying: WhyNot | None
    why_not_text: str
    retry_at_ms: int | None
    blocked: str | None
    last_error: LastError | None
    copying: CopyUnderWay | None
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The facts of a status; None for what this node does not know.

    `claimed_here`: the claim in force is this node's. `led_when_last_heard`: the broker led
    according to its last answer, however old.
    """

    partition: TopicIdPartition
    role: Role
    state: PartitionState | None
    local: LocalFacts | None
    claim: OwnClaim | None
    leader_epoch: int
    last_stable_offset: int | None
    wait: Wait | None
    back_off: BackOff
    last_error: LastError | None
    copying: CopyUnderWay | None
    now_ms: int
    metadata_offset: int
    claimed_here: bool = False
    led_when_last_heard: bool = False


def partition_status(facts: StatusFacts) -> PartitionStatus:
    """Assemble the page; nothing is decided here."""
    state, local = facts.state, facts.local
    highest = (-1, -1)
    if state is not None and state.highest_copied is not None:
        highest = state.highest_copied
    claim = state.claim if state is not None else None
    wait = facts.wait if facts.copying is None else None
    blocked = facts.back_off.failures > 0 and facts.back_off.kind is FailureKind.CORRUPT
    return PartitionStatus(
        partition=facts.partition,
        role=facts.role,
        mode=state.mode if state is not None else Mode.SIDECAR,
        delete_state=state.delete_state if state is not None else None,
        leader_epoch=facts.leader_epoch,
        claim_token=claim.token if claim is not None else -1,
        claimed_by_node=claim.incarnation.node_id if claim is not None else -1,
        local_log_start_offset=local.log_start_offset if local is not None else -1,
        active_base_offset=(
            local.segments[-1].base_offset if local is not None and local.segments else -1
        ),
        high_watermark=_or_unknown(local.high_watermark if local is not None else None),
        last_stable_offset=_or_unknown(facts.last_stable_offset),
        log_start_offset=state.log_start_offset if state is not None else -1,
        highest_copied_offset=highest[0],
        highest_copied_epoch=highest[1],
        next_offset=state.next_offset if state is not None else -1,
        lag=_lag(facts),
        local_bytes=None if local is None else sum(each.size_bytes for each in local.segments),
        remote_segments=state.segment_count if state is not None else 0,
        remote_bytes=state.size_bytes if state is not None else 0,
        trash_bytes=state.expiry.size_bytes if state is not None else 0,
        lost_ranges=state.lost_ranges if state is not None else (),
        why_not_copying=wait.why if wait is not None else None,
        why_not_text=wait.text if wait is not None else "",
        retry_at_ms=wait.until_ms if wait is not None else None,
        blocked=facts.back_off.text if blocked else None,
        last_error=facts.last_error,
        copying=facts.copying,
        metadata_offset=facts.metadata_offset,
    )


def _or_unknown(value: int | None) -> int:
    return -1 if value is None else value


_LEADS = {Role.LEADER: True, Role.UNKNOWN: None}


def _lag(facts: StatusFacts) -> Lag | None:
    state, local = facts.state, facts.local
    ours = answers_for_lag(
        _LEADS.get(facts.role, False),
        claimed_here=facts.claimed_here,
        led_when_last_heard=facts.led_when_last_heard,
    )
    deleted = state is not None and state.delete_state is not None
    if local is None or deleted or not ours:
        return None
    return lag(local.segments, state.next_offset if state is not None else -1, facts.now_ms)
