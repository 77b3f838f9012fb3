"""Planted bugs in the shipped rules, which prove that the simulation notices.

Each replaces a rule or two for the length of a run. Every one is found within `SEEDS_MAX` seeds of
`EVENTS` events each; a test holds that.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest.mock import patch

from rlmm.raft import (
    barriers,
    damaged_tail,
    fetch_validation,
    follower_fetch,
    high_watermark,
    leader,
    leader_append,
    leader_fetch,
    progress,
    proposals,
    quorum_state,
    replica_log,
    snapshot_download,
    snapshots,
    start,
    voter_changes,
    votes,
)
from rlmm.raft.actions import (
    LogCut,
    PersistedState,
    ProposalsCommitted,
    TruncateTo,
    WaitersDone,
)
from rlmm.raft.core import RaftCore
from rlmm.raft.events import BarrierRequested, CommitLearned, FlushCompleted
from rlmm.raft.messages import (
    Batch,
    EpochEnd,
    FetchSnapshotRequest,
    ReplicaKey,
    Voter,
    VoteRequest,
    VoterSet,
)
from rlmm.raft.replica import InitialState, LogView, Replica
from rlmm.raft.states import Follower, Leader, Progress, Prospective, State, Unattached
from rlmm.raft.timers import NEVER_MS
from rlmm.raft.voters import VoterHistory
from sim.core.disk import Disk
from sim.ground.planting import Patches, planting

SEEDS_MAX = 120
FIRST_SEEDS = {
    "a stale flush completion is believed": 200,
    "snapshot ids are not compared": 20,
    "a voter formatted again counts at once": 60,
    "a commit is believed in any epoch": 20,
    "a commit of an earlier epoch allows a voter change": 120,
    "a cut takes back a voter set that counts": 330,
}
"""First seed of the search for a bug that few seeds show."""
EVENTS = 4000

_truncate_to = replica_log.truncate_to
_validate = fetch_validation.validate
_barrier_requested = barriers.barrier_requested
_serve = snapshots.serve
_to_prospective = quorum_state.to_prospective
_progress_of = progress.of
_poll = follower_fetch.poll
_remembered = damaged_tail.remembered
_can_grant = votes.can_grant
_committed = voter_changes.committed
_append = leader_append.append
_reset = VoterHistory.reset
_reaches = damaged_tail.reaches
_forget_if_healed = damaged_tail.forget_if_healed


def _whole_log(r: Replica) -> int:
    return r.log.end_offset


def _yes(*_: object, **__: object) -> bool:
    return True


def _no(*_: object, **__: object) -> bool:
    return False


def _vote_in_memory(r: Replica, candidate: ReplicaKey) -> None:
    assert isinstance(r.state, Unattached | Prospective)
    r.state.voted = candidate


def _forgetful_start(r: Replica, stored: PersistedState) -> State:
    return Unattached(stored.epoch, -1, None, quorum_state.election_deadline(r))


def _knows_all(r: Replica, initial: InitialState) -> LogCut | None:
    return _remembered(r, initial) if initial.quorum else None


def _truncate_in_one_generation(r: Replica, end_offset: int) -> None:
    r.log.generation -= 1
    _truncate_to(r, end_offset)


def _cut_whole_epochs(r: Replica, _: Follower, diverging: EpochEnd) -> None:
    """Truncates where the diverging epoch begins, without a look at the high watermark."""
    log = r.log
    starts = [begin for epoch, begin in log.epochs.entries if epoch >= diverging.epoch]
    end = min([*starts, log.end_offset])
    log.generation += 1
    log.end_offset = end
    log.flushed_offset = log.flush_requested = min(log.flushed_offset, end)
    log.epochs.truncate_to(end)
    r.emit(TruncateTo(end, log.generation))
    r.voters.truncate_to(end)


def _believe_any_completion(r: Replica, event: FlushCompleted) -> bool:
    end = min(event.offset, r.log.end_offset)
    grown = end > r.log.flushed_offset
    r.log.flushed_offset = max(end, r.log.flushed_offset)
    return grown


def _fetch_before_flush(r: Replica) -> None:
    flushed, r.log.flushed_offset = r.log.flushed_offset, r.log.end_offset
    _poll(r)
    r.log.flushed_offset = flushed


def _prospective_of_next_epoch(r: Replica) -> None:
    r.state.epoch += 1
    quorum_state.persist(r)
    _to_prospective(r)


def _any_offset_is_valid(log: LogView, offset: int, epoch: int) -> object:
    known = log.start_offset <= offset <= log.end_offset
    return None if known else _validate(log, offset, epoch)


def _stay_diverged(r: Replica, *_: object) -> None:
    r.fetch.due_ms = r.now + r.settings.retry_backoff_ms


def _serve_the_newest(r: Replica, correlation: Hashable, request: FetchSnapshotRequest) -> None:
    newest = r.log.latest_snapshot
    size = r.log.snapshots.get(newest, 0) if newest is not None else 0
    if newest is not None and request.position < size:
        request = FetchSnapshotRequest(
            request.replica, request.epoch, newest, request.position, request.bytes_max
        )
    _serve(r, correlation, request)


def _read_at_once(r: Replica, event: BarrierRequested) -> None:
    if isinstance(r.state, Leader) and r.state.established:
        r.emit(WaitersDone((event.handle,), r.apply_to))
    else:
        _barrier_requested(r, event)


def _know_replicas_by_node_id(r: Replica, leader: Leader, key: ReplicaKey) -> Progress | None:
    same = [voter for voter in r.voters.keys if voter.node_id == key.node_id]
    return _progress_of(r, leader, same[0] if same else key)


def _everybody_at_once(r: Replica, leader: Leader) -> int:
    """Counts a replica as soon as it has fetched at all."""
    ends = [r.log.flushed_offset]
    ends += [known.end_offset for known in leader.progress.values()]
    return max(ends)


def _learn_in_any_epoch(r: Replica, event: CommitLearned) -> None:
    if isinstance(r.state, Follower):
        high_watermark.advance(r, min(event.end_offset, r.log.end_offset))


def _voters_stay(*_: object) -> bool:
    """Truncation leaves the voter set of a record that is gone."""
    return False


def _change_above_any_commit(r: Replica, state: Leader) -> bool:
    """Judge a change by what this replica knew to be committed before it led."""
    return state.change is not None or r.voters.has_uncommitted(r.high_watermark)


def _any_pre_vote(state: State, request: VoteRequest, *, log_up_to_date: bool) -> bool:
    if request.pre_vote and isinstance(state, Follower):
        return log_up_to_date
    return _can_grant(state, request, log_up_to_date=log_up_to_date)


def _keep_latest(history: VoterHistory, end_offset: int, _: VoterSet | None) -> None:
    """The set of the replaced log goes on; the next change brings the snapshot's."""
    _reset(history, end_offset, history.latest)


def _one_change_before(core: RaftCore, end_offset: int) -> VoterSet:
    voters = core.replica.voters
    committed = voters.committed(end_offset)
    sets = voters.oldest_first()
    return sets[max(sets.index(committed) - 1, 0)]


def _heals_by_any_high_watermark(r: Replica) -> None:
    if r.cut is None or not isinstance(r.state, Follower | Leader):
        return
    told = isinstance(r.state, Follower) and r.state.first_high_watermark >= 0
    leads = isinstance(r.state, Leader) and r.state.established
    if told or leads or _reaches(r.cut, r.log.last_epoch, r.log.flushed_offset):
        damaged_tail.forget(r)


def _heals_by_what_is_not_synced(r: Replica) -> None:
    if r.cut is not None and _reaches(r.cut, r.log.last_epoch, r.log.flushed_offset):
        damaged_tail.forget(r)
    else:
        _forget_if_healed(r)


def _remembers_this_start_only(r: Replica, initial: InitialState) -> LogCut | None:
    stored = initial.quorum
    forgotten = None if stored is None else replace(stored, cut=None)
    return _remembered(r, replace(initial, quorum=forgotten))


def _done_before_its_record(r: Replica, state: Leader) -> None:
    change = state.change
    if change is None or change.offset != state.high_watermark:
        _committed(r, state)
    else:
        with patch.object(change, "offset", state.high_watermark - 1):
            _committed(r, state)


def _fetches_lately(r: Replica, state: Leader, voter: Voter) -> bool:
    known = state.progress.get(voter.key)
    return known is not None and r.now - known.last_fetch_ms <= r.settings.caught_up_within_ms


def _renew_deadline(r: Replica, leader: Leader, batches: tuple[Batch, ...]) -> None:
    """Take an append for a sign that the disk works."""
    leader.sync_deadline_ms = NEVER_MS
    _append(r, leader, batches)


def _acknowledge_first_records(r: Replica, leader: Leader) -> None:
    """Take a proposal for committed with its first record."""
    done = []
    while leader.proposals and leader.proposals[0].base_offset < leader.high_watermark:
        proposal = leader.proposals.popleft()
        done.append((proposal.handle, proposal.base_offset))
    if done:
        r.emit(ProposalsCommitted(tuple(done), leader.epoch))


def _stay(r: Replica, state: Leader) -> None:
    """Counts a removed leader among those that may lead."""
    with patch.object(Replica, "is_voter", True):
        _committed(r, state)


BUGS: dict[str, Patches] = {
    "the leader counts what it has not synced": ((high_watermark, "own_durable_end", _whole_log),),
    "the follower fetches before it has synced": ((follower_fetch, "poll", _fetch_before_flush),),
    "the vote is not persisted": ((quorum_state, "vote_for", _vote_in_memory),),
    "a restart forgets vote and leadership": ((start, "_first_state", _forgetful_start),),
    "records of older epochs are committed by counting": ((high_watermark, "may_commit", _yes),),
    "votes go to logs that are behind": ((votes, "up_to_date", _yes),),
    "truncation ignores the high watermark": ((follower_fetch, "diverged", _cut_whole_epochs),),
    "a truncation keeps the generation": (
        (replica_log, "truncate_to", _truncate_in_one_generation),
    ),
    "a stale flush completion is believed": ((replica_log, "flushed", _believe_any_completion),),
    "two voter changes at once": ((voter_changes, "change_under_way", _no),),
    "a commit of an earlier epoch allows a voter change": (
        (voter_changes, "committed_in_own_epoch", _yes),
        (voter_changes, "change_under_way", _change_above_any_commit),
    ),
    "a pre-vote raises the epoch": ((quorum_state, "to_prospective", _prospective_of_next_epoch),),
    "the leader takes any fetch offset for valid": (
        (leader_fetch, "validate", _any_offset_is_valid),
    ),
    "the follower ignores divergence": ((follower_fetch, "diverged", _stay_diverged),),
    "snapshot ids are not compared": (
        (snapshots, "serve", _serve_the_newest),
        (snapshot_download, "wanted", _yes),
    ),
    "a barrier asks no majority": ((barriers, "barrier_requested", _read_at_once),),
    "a cut tail is forgotten": (
        (damaged_tail, "forbids_vote", _no),
        (damaged_tail, "may_win", _yes),
    ),
    "a voter formatted again takes itself for new": ((damaged_tail, "remembered", _knows_all),),
    "a voter formatted again counts at once": ((damaged_tail, "counts", _yes),),
    "a wiped disk counts as the old replica": ((progress, "of", _know_replicas_by_node_id),),
    "the fastest replica commits": ((high_watermark, "majority_end", _everybody_at_once),),
    "a commit is believed in any epoch": ((high_watermark, "learned", _learn_in_any_epoch),),
    "truncation does not undo a voter change": ((VoterHistory, "truncate_to", _voters_stay),),
    "a leader never misses its majority": ((leader, "lost_majority", _no),),
    "a pre-vote disturbs a leader that is heard": ((votes, "can_grant", _any_pre_vote),),
    "a change is done before its record is committed": (
        (voter_changes, "committed", _done_before_its_record),
    ),
    "a voter is added that lags": ((voter_changes, "caught_up", _fetches_lately),),
    "each append is a sign that the disk works": ((leader_append, "append", _renew_deadline),),
    "a proposal is committed with its first record": (
        (proposals, "acknowledge", _acknowledge_first_records),
    ),
    "a leader that was removed stays": ((voter_changes, "committed", _stay),),
    "the voters of a replaced log stay": ((VoterHistory, "reset", _keep_latest),),
    "a snapshot has the voters of one change before": (
        (RaftCore, "voters_at", _one_change_before),
    ),
    "any told high watermark heals a cut": (
        (damaged_tail, "forget_if_healed", _heals_by_any_high_watermark),
    ),
    "records that are not synced heal a cut": (
        (damaged_tail, "forget_if_healed", _heals_by_what_is_not_synced),
    ),
    "a cut is forgotten over a restart": (
        (damaged_tail, "remembered", _remembers_this_start_only),
    ),
    "a cut takes back a voter set that counts": ((Disk, "_note_recovery_point", _no),),
}


def planted(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS[name])
