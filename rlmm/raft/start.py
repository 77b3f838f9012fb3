"""The start of a replica from the recovered state (Kafka's QuorumState.initialize)."""

from __future__ import annotations

from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.raft import damaged_tail, quorum_state
from rlmm.raft.actions import AdvanceHighWatermark, PersistedState, RoleChanged, VotersChanged
from rlmm.raft.messages import NONE_ID
from rlmm.raft.replica import InitialState, Replica
from rlmm.raft.states import Follower, Resigned, State, Unattached


def start(r: Replica, initial: InitialState) -> None:
    """Start a replica. It never resumes as leader: records that it wrote and lost in that epoch
    must not be replaced by different ones of the same epoch and offset.
    """
    log = r.log
    if log.start_offset > 0 and all(
        snapshot.end_offset < log.start_offset for snapshot in log.snapshots
    ):
        r.fail(
            f"the metadata log starts at {log.start_offset}, but no snapshot covers records below. "
            f"What to do: {REPLACE_REPLICA}"
        )
        return
    stored = initial.quorum
    if stored is None and log.end_offset > 0:
        r.fail(
            "the log has records, but the quorum state is missing: this node may have voted. "
            f"What to do: {REPLACE_REPLICA}"
        )
        return
    stored = stored or PersistedState(0)
    r.state = Unattached(stored.epoch, NONE_ID, None, r.now)
    r.cut = damaged_tail.remembered(r, initial)
    r.state = _first_state(r, stored)
    quorum_state.persist(r)
    r.emit(RoleChanged(r.state.role, r.state.epoch, r.state.leader_id))
    r.emit(VotersChanged(r.voters.latest, r.voters.latest_offset))
    if r.high_watermark > 0:
        r.emit(AdvanceHighWatermark(r.high_watermark, r.apply_to))


def _first_state(r: Replica, stored: PersistedState) -> State:
    deadline_ms = quorum_state.election_deadline(r)
    last_epoch = r.log.last_epoch
    if stored.epoch < last_epoch:
        return Unattached(last_epoch, NONE_ID, None, deadline_ms)
    if stored.leader_id == r.key.node_id:
        # A removed leader resigns from its old epoch, too, although it is not a voter.
        deadline_ms = r.now
        if not r.is_sole_voter:
            deadline_ms += r.settings.election_timeout(r.jitter())
        return Resigned(stored.epoch, stored.leader_id, stored.voted, deadline_ms)
    if stored.leader_id != NONE_ID and _reachable(r, stored.leader_id):
        fetch_deadline_ms = r.now + r.settings.fetch_timeout_ms
        return Follower(stored.epoch, stored.leader_id, stored.voted, fetch_deadline_ms)
    # It remembers a leader that it cannot reach, so that it does not vote in that epoch.
    return Unattached(stored.epoch, stored.leader_id, stored.voted, deadline_ms)


def _reachable(r: Replica, node_id: int) -> bool:
    return node_id in r.peers or any(key.node_id == node_id for key in r.voters.keys)
