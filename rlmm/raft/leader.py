"""Becoming leader, staying it, and giving it up in order.

The first batch of an epoch is LeaderChange; in a log without a voter set, KRaftVersion and Voters
are in the same batch. The leader sends BeginQuorumEpoch to the voters until they fetch. It resigns
when no majority has fetched for `check_quorum_ms` (if it is cut off, no message of a new leader
reaches it), and when its own disk has synced nothing for that time.
"""

from __future__ import annotations

from rlmm.raft import barriers, leader_append, parked_fetches, progress, quorum_state, requests
from rlmm.raft.actions import CommandDone, ShutdownDone
from rlmm.raft.events import TransferLeadership
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    ControlRecord,
    EndQuorumEpochRequest,
    Error,
    KRaftVersion,
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterChangeResponse,
    VotersRecord,
)
from rlmm.raft.replica import PendingRequest, Replica
from rlmm.raft.states import Leader, Progress, Resigned, Transfer
from rlmm.raft.timers import NEVER_MS
from rlmm.raft.voters import with_endpoints


def begin(r: Replica, granting: tuple[int, ...]) -> None:
    """Begin to lead: a majority voted for this replica."""
    leader = quorum_state.to_leader(r)
    voters = r.voters.latest
    moved = voters
    if r.endpoints and r.is_voter:
        moved = with_endpoints(voters, Voter(r.key, r.endpoints))
    ids = tuple(key.node_id for key in voters.keys)
    records: list[ControlRecord] = [LeaderChange(leader.leader_id, ids, granting)]
    if not r.voters.in_log:
        records += [KRaftVersion(), VotersRecord(moved)]
    elif moved != voters:
        records.append(VotersRecord(moved))
    leader_append.append_control(r, leader, tuple(records))
    for key in voters.keys:
        if key != r.key:
            leader.progress[key] = Progress(begin_due_ms=r.now)
    leader.sweep_due_ms = r.now + r.settings.fetch_timeout_ms
    tell_voters(r, leader)


def tell_voters(r: Replica, leader: Leader) -> None:
    """Send BeginQuorumEpoch to every voter that has not fetched for a while."""
    period_ms = r.settings.begin_quorum_epoch_period_ms
    for key in r.voters.keys:
        known = leader.progress.get(key) if key != r.key else None
        if known is None or known.begin_in_flight is not None or known.begin_due_ms > r.now:
            continue
        if known.last_fetch_ms >= 0 and r.now < known.last_fetch_ms + period_ms:
            known.begin_due_ms = known.last_fetch_ms + period_ms
            continue
        request = BeginQuorumEpochRequest(leader.leader_id, leader.epoch, key)
        known.begin_in_flight = requests.send(r, key, request, r.settings.request_timeout_ms)


def begin_answered(r: Replica, request_id: int, pending: PendingRequest, *, ok: bool) -> None:
    leader = r.state
    known = leader.progress.get(pending.peer) if isinstance(leader, Leader) else None
    if known is not None and known.begin_in_flight == request_id:
        known.begin_in_flight = None
        wait_ms = r.settings.begin_quorum_epoch_period_ms if ok else r.settings.retry_backoff_ms
        known.begin_due_ms = r.now + wait_ms


def lost_majority(r: Replica, leader: Leader) -> bool:
    """True if no majority, this replica included if it votes, has fetched lately. A sole voter is
    exempt (KAFKA-16144); a leader outside the set counts the others only (KAFKA-16531).
    """
    if r.now < leader.check_quorum_deadline_ms:
        return False
    times = []
    for key in r.voters.keys:
        known = leader.progress.get(key)
        last_ms = known.last_fetch_ms if known is not None and known.counts else -1
        times.append(r.now if key == r.key else max(last_ms, leader.started_ms))
    times.sort(reverse=True)
    leader.check_quorum_deadline_ms = times[len(times) // 2] + r.settings.check_quorum_ms
    return r.now >= leader.check_quorum_deadline_ms


def synced(r: Replica, leader: Leader) -> None:
    """Restart the disk's time limit, since more of this log is durable."""
    all_is = r.log.flushed_offset == r.log.end_offset
    leader.sync_deadline_ms = NEVER_MS if all_is else r.now + r.settings.check_quorum_ms


def disk_hangs(r: Replica, leader: Leader) -> bool:
    """True if writes have not become durable lately. A sole voter has no successor, and goes on."""
    if r.now < leader.sync_deadline_ms:
        return False
    leader.sync_deadline_ms = r.now + r.settings.check_quorum_ms
    return not r.is_sole_voter


def resign(r: Replica, leader: Leader, *, first: ReplicaKey | None = None) -> None:
    """Stop leading at once and name successors: `first`, then by end offset."""
    preferred = progress.by_end_offset(r, leader)
    if first is not None:
        preferred = (first, *(key for key in preferred if key != first))
    quorum_state.to_resigned(r, preferred)
    tell_of_resignation(r)


def tell_of_resignation(r: Replica) -> None:
    """Send EndQuorumEpoch until each voter has answered or the state changes."""
    state = r.state
    if not isinstance(state, Resigned):
        return
    for key, notice in state.notices.items():
        if notice.acknowledged or notice.in_flight is not None or notice.due_ms > r.now:
            continue
        request = EndQuorumEpochRequest(state.leader_id, state.epoch, state.preferred)
        notice.in_flight = requests.send(r, key, request, r.settings.request_timeout_ms)


def end_answered(r: Replica, request_id: int, pending: PendingRequest, *, ok: bool) -> None:
    state = r.state
    notice = state.notices.get(pending.peer) if isinstance(state, Resigned) else None
    if notice is not None and notice.in_flight == request_id:
        notice.in_flight = None
        notice.acknowledged = ok
        notice.due_ms = r.now + r.settings.retry_backoff_ms


def tick(r: Replica, leader: Leader) -> None:
    """Do everything that a leader does by the clock."""
    if lost_majority(r, leader):
        r.warn(
            f"no majority of voters has fetched for {r.settings.check_quorum_ms} ms: this node "
            f"resigns as leader of epoch {leader.epoch}; check the network and the other nodes"
        )
        resign(r, leader)
        return
    if disk_hangs(r, leader):
        r.warn(
            f"the disk of this node's metadata log has synced nothing for "
            f"{r.settings.check_quorum_ms} ms: it resigns as leader of epoch {leader.epoch}, for "
            "others can lead; check the disk"
        )
        resign(r, leader)
        return
    tell_voters(r, leader)
    parked_fetches.answer_expired(r, leader)
    _expire_change(r, leader)
    _continue_transfer(r, leader)
    if r.state is leader and leader.sweep_due_ms <= r.now:
        leader.sweep_due_ms = r.now + r.settings.fetch_timeout_ms
        progress.forget_idle_observers(r, leader)


def _expire_change(r: Replica, leader: Leader) -> None:
    change = leader.change
    if change is None or change.answered or change.deadline_ms > r.now:
        return
    what = "is in the log and not committed" if change.offset is not None else "was not begun"
    message = f"the change {what}: look at the voters and their lag before trying again"
    r.respond(change.correlation, VoterChangeResponse(Error.REQUEST_TIMED_OUT, message))
    change.answered = True
    if change.offset is None:
        leader.change = None


def transfer_requested(r: Replica, event: TransferLeadership) -> None:
    """Begin a transfer: take no new records until the target has all, then resign in its favour."""
    leader = r.state
    if not isinstance(leader, Leader) or r.shutting_down:
        leader_id = public_leader_id(r)
        message = f"this node does not lead; node {leader_id} does" if leader_id >= 0 else ""
        r.emit(CommandDone(event.handle, Error.NOT_LEADER_OR_FOLLOWER, message))
        return
    if leader.transfer is not None or leader.change is not None:
        message = "a transfer or a change of voters is under way: wait for it"
        r.emit(CommandDone(event.handle, Error.REQUEST_TIMED_OUT, message))
        return
    candidates = progress.by_end_offset(r, leader)
    if not candidates:
        why = f"node {r.key.node_id} is the only voter and has no successor: add a voter first"
        r.emit(CommandDone(event.handle, Error.VOTER_NOT_FOUND, why))
        return
    target = event.target if event.target is not None else candidates[0]
    if target not in candidates:
        is_what = "leads already" if target == r.key else "is not a voter with that directory id"
        why = f"node {target.node_id} {is_what}: name one of the other voters"
        r.emit(CommandDone(event.handle, Error.VOTER_NOT_FOUND, why))
        return
    deadline_ms = r.now + r.settings.transfer_timeout_ms
    leader.transfer = Transfer(event.handle, target, deadline_ms)
    _continue_transfer(r, leader)


def _continue_transfer(r: Replica, leader: Leader) -> None:
    transfer = leader.transfer
    if transfer is None:
        return
    known = leader.progress.get(transfer.target)
    end = r.log.end_offset
    if known is not None and known.end_offset >= end and leader.high_watermark >= end:
        resign(r, leader, first=transfer.target)
    elif transfer.deadline_ms <= r.now:
        leader.transfer = None
        message = f"node {transfer.target.node_id} did not catch up in time; this node leads on"
        r.emit(CommandDone(transfer.handle, Error.REQUEST_TIMED_OUT, message))
        # Reads that arrived meanwhile still need their record.
        barriers.acknowledge_barriers(r, leader)


def continue_transfer(r: Replica) -> None:
    """Continue a transfer, after the high watermark moved or a replica caught up further."""
    if isinstance(r.state, Leader):
        _continue_transfer(r, r.state)


def shut_down(r: Replica) -> None:
    """Resign, tell the voters, and let the driver close once they know or time is up."""
    if r.shutting_down:
        return
    r.shutting_down = True
    r.shutdown_deadline_ms = r.now + r.settings.shutdown_timeout_ms
    if isinstance(r.state, Leader):
        resign(r, r.state)
    finish_shutdown(r)


def finish_shutdown(r: Replica) -> None:
    state = r.state
    if not r.shutting_down or r.shutdown_deadline_ms < 0:
        return
    told = not isinstance(state, Resigned) or all(
        notice.acknowledged for notice in state.notices.values()
    )
    if told or r.shutdown_deadline_ms <= r.now:
        r.shutdown_deadline_ms = -1
        r.emit(ShutdownDone())
