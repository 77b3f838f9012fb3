"""The high watermark: the offset up to which the log is committed.

A leader sorts the voters' *durable* ends, its own flushed offset included; the records below the
middle one are on a majority. It becomes the high watermark only past the epoch's first record, so
that a record of this epoch is on a majority (Raft, figure 8), and it never moves back. A leader
outside the voter set does not count itself (KAFKA-16530).
"""

from __future__ import annotations

from rlmm.raft import barriers, damaged_tail, parked_fetches, proposals, voter_changes
from rlmm.raft.actions import AdvanceHighWatermark, RoleChanged
from rlmm.raft.events import CommitLearned
from rlmm.raft.replica import Replica
from rlmm.raft.states import Follower, Leader


def own_durable_end(r: Replica) -> int:
    """The durable end up to which a leader counts itself (etcd #14370)."""
    return r.log.flushed_offset


def majority_end(r: Replica, leader: Leader) -> int:
    """The offset below which a majority of the latest voter set is durable; -1 if unknown."""
    me, progress = r.key, leader.progress
    ends = []
    for key in r.voters.keys:
        if key == me:
            ends.append(own_durable_end(r))
        else:
            known = progress.get(key)
            ends.append(known.end_offset if known is not None and known.counts else -1)
    ends.sort(reverse=True)
    return ends[len(ends) // 2] if ends else -1


def may_commit(leader: Leader, end: int) -> bool:
    """True only past the epoch's first record: to commit records of older epochs by counting
    replicas is unsafe.
    """
    return end > leader.start_offset


def update_as_leader(r: Replica) -> None:
    """Move the high watermark, after a follower acknowledged more or this log's own sync."""
    leader = r.state
    if not isinstance(leader, Leader):
        return
    end = majority_end(r, leader)
    if end > leader.high_watermark and may_commit(leader, end):
        leader.high_watermark = end
        advance(r, end)
        proposals.acknowledge(r, leader)
        parked_fetches.answer_soon(r, leader)
        voter_changes.committed(r, leader)
    else:
        advance(r, r.high_watermark)
    if r.state is leader:
        if not leader.established and leader.high_watermark > leader.start_offset < r.apply_to:
            leader.established = True
            r.emit(RoleChanged(leader.role, leader.epoch, leader.leader_id, established=True))
            damaged_tail.forget_if_healed(r)
        barriers.acknowledge_barriers(r, leader)


def learned(r: Replica, event: CommitLearned) -> None:
    """Take the commit of a proposal of this node from the leader's answer, which arrives before the
    next fetch response.

    It is used only in the epoch of this log's last record: then this log is a prefix of that
    leader's (Raft's log matching), and records below its end that are committed there are committed
    here. A replica that does not count (`damaged_tail.py`) uses fetch responses only.
    """
    state = r.state
    if (
        isinstance(state, Follower)
        and event.epoch == state.epoch == r.log.last_epoch
        and damaged_tail.counts(r)
    ):
        advance(r, min(event.end_offset, r.log.end_offset))


def advance(r: Replica, high_watermark: int) -> None:
    """Move the high watermark forward, never back; apply only records that are durable here too."""
    high_watermark = max(r.high_watermark, high_watermark)
    apply_to = max(r.apply_to, min(high_watermark, r.log.flushed_offset))
    if high_watermark == r.high_watermark and apply_to == r.apply_to:
        return
    r.high_watermark, r.apply_to = high_watermark, apply_to
    r.emit(AdvanceHighWatermark(high_watermark, apply_to))
    if r.at_least.heap:
        barriers.acknowledge_at_least(r)
