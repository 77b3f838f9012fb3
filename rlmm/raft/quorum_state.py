"""Transitions between the states of a replica (Kafka's QuorumState), and what each makes durable.

| From | To | On |
|---|---|---|
| Unattached | Unattached | a higher epoch, or a vote given |
| Unattached (voter) | Prospective | election time-out |
| Prospective | Candidate | a majority of pre-votes |
| Prospective | Follower or Unattached, same epoch | pre-vote lost or timed out |
| Candidate | Leader | a majority of votes |
| Candidate | Prospective | election time-out |
| Leader | Resigned | shutdown, transfer, own removal, check-quorum |
| Follower (voter) | Prospective | fetch time-out |
| Follower (observer) | Unattached, remembers the leader | fetch time-out |
| Resigned | Unattached at epoch + 1 | election time-out |
| any | Unattached or Follower | a higher epoch without or with a leader |
| no leader known | Follower | the leader of the epoch is learned |

Only Prospective becomes Candidate, and only Candidate raises the epoch to stand for election. A
change of epoch, leader or vote is persisted before any action that depends on it. Prospective and
Resigned change none of them, so they write nothing.
"""

from __future__ import annotations

from typing import Final

from rlmm.raft import leaving
from rlmm.raft.actions import PersistedState, PersistQuorumState, RoleChanged
from rlmm.raft.messages import NONE_ID, ReplicaKey
from rlmm.raft.replica import Replica
from rlmm.raft.states import (
    Ballot,
    Candidate,
    EndNotice,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from rlmm.raft.timers import NEVER_MS

EPOCH_MAX: Final = 2**31 - 1
"""The highest epoch: epochs are int32 on the wire and on disk."""


def election_deadline(r: Replica) -> int:
    """A fresh random election time-out; only voters stand (KAFKA-17067)."""
    if not r.is_electable:
        return NEVER_MS
    if r.is_sole_voter:
        return r.now
    return r.now + r.settings.election_timeout(r.jitter())


def persist(r: Replica) -> None:
    """Write epoch, leader, vote and cut tail, if they differ from the stored ones."""
    state = r.state
    wanted = PersistedState(state.epoch, state.leader_id, state.voted, r.cut)
    if wanted != r.stored:
        r.stored = wanted
        r.emit(PersistQuorumState(wanted))


def _enter(r: Replica, state: State) -> None:
    """Change the state; the only function that does."""
    before, r.state = r.state, state
    r.requests.clear()
    r.fetch.in_flight = None
    r.fetch.due_ms = r.now
    r.update.in_flight = None
    r.update.due_ms = r.now
    persist(r)
    if isinstance(before, Leader):
        r.leader_heard_ms = r.now
        r.leader_high_watermark = max(r.leader_high_watermark, before.high_watermark)
        leaving.answer_everybody(r, before)
    r.emit(RoleChanged(state.role, state.epoch, state.leader_id))


def to_unattached(r: Replica, epoch: int, leader_id: int = NONE_ID) -> None:
    """Become Unattached in a higher epoch, or in the same one after a lost pre-vote or when the
    leader no longer answers.
    """
    old = r.state
    voted = None
    if epoch == old.epoch:
        assert isinstance(old, Unattached | Prospective | Follower), old
        voted, leader_id = old.voted, old.leader_id
    else:
        assert epoch > old.epoch, f"epoch {epoch} after {old.epoch}"
    _enter(r, Unattached(epoch, leader_id, voted, election_deadline(r)))


def vote_for(r: Replica, candidate: ReplicaKey) -> None:
    """Give this epoch's vote; durable before the answer. The election timer starts anew."""
    state = r.state
    assert isinstance(state, Unattached | Prospective)
    assert state.voted in (None, candidate)
    state.voted = candidate
    state.deadline_ms = election_deadline(r)
    persist(r)


def to_prospective(r: Replica) -> None:
    old = r.state
    assert isinstance(old, Unattached | Candidate | Follower), old
    assert r.is_electable
    deadline_ms = r.now + r.settings.election_timeout(r.jitter())
    _enter(r, Prospective(old.epoch, old.leader_id, old.voted, deadline_ms, _ballots(r)))


def to_candidate(r: Replica) -> None:
    """Become a candidate: the epoch rises by one, and this replica votes for itself in it."""
    old = r.state
    assert isinstance(old, Prospective), old
    deadline_ms = r.now + r.settings.election_timeout(r.jitter())
    _enter(r, Candidate(old.epoch + 1, r.key, deadline_ms, _ballots(r)))


def _ballots(r: Replica) -> dict[ReplicaKey, Ballot]:
    """The voters to ask; those before an uncommitted change must answer, too."""
    keys = r.voters.in_force(r.high_watermark)
    return {key: Ballot(due_ms=r.now) for key in keys if key != r.key}


def to_leader(r: Replica) -> Leader:
    """Become the leader; the vote stays stored beside the leadership (KAFKA-18389)."""
    old = r.state
    assert isinstance(old, Candidate), old
    state = Leader(
        epoch=old.epoch,
        leader_id=r.key.node_id,
        voted=old.voted,
        start_offset=r.log.end_offset,
        started_ms=r.now,
        check_quorum_deadline_ms=r.now + r.settings.check_quorum_ms,
    )
    _enter(r, state)
    return state


def to_follower(r: Replica, epoch: int, leader_id: int) -> None:
    """Follow the leader of an equal or higher epoch, which is never this replica (KAFKA-18379)."""
    old = r.state
    assert leader_id not in (NONE_ID, r.key.node_id)
    voted = None
    if epoch == old.epoch:
        assert not isinstance(old, Leader | Resigned), old
        voted = old.voted
    else:
        assert epoch > old.epoch
    _enter(r, Follower(epoch, leader_id, voted, r.now + r.settings.fetch_timeout_ms))


def to_resigned(r: Replica, preferred: tuple[ReplicaKey, ...]) -> None:
    """Give up leadership and notify the voters, in the order of succession."""
    old = r.state
    assert isinstance(old, Leader), old
    notices = {key: EndNotice(due_ms=r.now) for key in r.voters.keys if key != r.key}
    deadline_ms = r.now + r.settings.election_timeout(r.jitter())
    _enter(r, Resigned(old.epoch, old.leader_id, old.voted, deadline_ms, preferred, notices))


def observe(r: Replica, epoch: int, leader_id: int) -> bool:
    """Take note of a peer's epoch and leader; True if the state changed."""
    state = r.state
    if epoch > EPOCH_MAX:
        r.warn(f"a peer named the impossible epoch {epoch}: ignored; find the peer that sends it")
        return False
    if epoch > state.epoch:
        if leader_id in (NONE_ID, r.key.node_id):
            if leader_id == r.key.node_id:
                r.warn(
                    f"a peer says that this node, {leader_id}, leads epoch {epoch}, which it does "
                    "not: its data directory was lost since, or another node runs with its node "
                    "id; then stop one of the two"
                )
            to_unattached(r, epoch, leader_id)
        else:
            to_follower(r, epoch, leader_id)
        return True
    if epoch < state.epoch or leader_id in (NONE_ID, r.key.node_id):
        return False
    known = state.leader_id
    if known not in (NONE_ID, leader_id):
        r.warn(
            f"a peer names node {leader_id} as leader of epoch {epoch}, this node knows {known}: "
            "ignored. Look for two nodes with one identity (copied data directories)"
        )
        return False
    # A Prospective that knows its leader goes back to it when the pre-vote ends, not before.
    if isinstance(state, Unattached | Candidate) or (
        isinstance(state, Prospective) and known == NONE_ID
    ):
        to_follower(r, epoch, leader_id)
        return True
    return False
