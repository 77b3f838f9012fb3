"""Standing for election: a round of pre-votes in the present epoch, then one of votes in the next.

A replica requests the vote of every other voter of its latest set, counts its own, and needs a
majority. A prospective one asks voters that refused again every `pre_vote_retry_ms`: a pre-vote is
not binding, and the other voters may lose their leader a moment later.
"""

from __future__ import annotations

from rlmm.raft import damaged_tail, identity, leader, quorum_state, requests
from rlmm.raft.messages import NONE_ID, Error, ReplicaKey, VoteRequest, VoteResponse
from rlmm.raft.replica import PendingRequest, Replica
from rlmm.raft.states import Ballot, Candidate, Follower, Prospective, Resigned, Unattached
from rlmm.raft.timers import NEVER_MS


def may_stand(r: Replica) -> bool:
    """True for voters (KAFKA-17067), unless a snapshot replaces the log or the node shuts down."""
    installing = r.download is not None and r.download.installing
    return r.is_electable and not installing and not r.shutting_down


def election_time(r: Replica) -> None:
    """Handle the expiry of the present state's election or fetch timer."""
    state = r.state
    if isinstance(state, Resigned):
        if not r.shutting_down and state.epoch < quorum_state.EPOCH_MAX:
            quorum_state.to_unattached(r, state.epoch + 1)
        else:
            state.deadline_ms = NEVER_MS  # it would stay due, and the driver would spin
    elif isinstance(state, Prospective):
        damaged_tail.warn_of_silence(r, state.ballots)
        give_up(r)
    elif isinstance(state, Follower) and not r.is_electable:
        quorum_state.to_unattached(r, state.epoch)
    elif isinstance(state, Unattached | Candidate | Follower):
        if may_stand(r):
            stand(r)
        else:
            state.deadline_ms = r.now + r.settings.election_timeout(r.jitter())


def stand(r: Replica) -> None:
    quorum_state.to_prospective(r)
    ask(r)


def give_up(r: Replica) -> None:
    """Return to the state before the pre-vote: same epoch, same vote."""
    state = r.state
    assert isinstance(state, Prospective)
    if state.leader_id not in (NONE_ID, r.key.node_id):
        quorum_state.to_follower(r, state.epoch, state.leader_id)
    else:
        quorum_state.to_unattached(r, state.epoch)


def ask(r: Replica) -> None:
    """Send the requests that are due; a sole voter needs no answers."""
    state = r.state
    if not isinstance(state, Prospective | Candidate):
        return
    pre_vote = isinstance(state, Prospective)
    all_answered = damaged_tail.longest_of_all(r, state.ballots)
    for key, ballot in state.ballots.items():
        if ballot.in_flight is not None or ballot.granted:
            continue
        tell = all_answered and ballot.answer is not None and ballot.answer.tail_was_cut
        news = tell and not ballot.told_all_answered
        if not news and (ballot.due_ms > r.now or (ballot.answer is not None and not pre_vote)):
            continue
        ballot.told_all_answered = tell
        request = VoteRequest(
            state.epoch,
            r.key,
            key,
            r.log.last_epoch,
            r.log.end_offset,
            pre_vote,
            all_answered=tell,
            incarnation=r.incarnation,
        )
        ballot.in_flight = requests.send(r, key, request, r.settings.election_timeout_ms)
    count(r)


def answered(r: Replica, request_id: int, pending: PendingRequest, response: VoteResponse) -> None:
    if response.error is Error.STALE_BROKER_EPOCH:
        identity.stop_as_the_older(r, pending.peer)
        return
    if response.tail_was_cut and response.leader_epoch == pending.epoch:
        damaged_tail.heard_of_cut(r, pending.peer)
    ballot = _ballot(r, request_id, pending)
    if ballot is None:
        ask(r)
        return
    if response.error is not Error.NONE or response.leader_epoch != pending.epoch:
        # An answer from a different epoch than that of the request is no vote in this one.
        ballot.told_all_answered = False
        ballot.due_ms = r.now + r.settings.pre_vote_retry_ms
        return
    ballot.answer = response
    ballot.granted = response.vote_granted
    if not ballot.granted:
        ballot.due_ms = r.now + r.settings.pre_vote_retry_ms
    ask(r)


def failed(
    r: Replica, request_id: int, pending: PendingRequest, *, unsupported_version: bool
) -> None:
    """Ask again later. A peer without pre-vote does not prevent the election (etcd #8501)."""
    ballot = _ballot(r, request_id, pending)
    if ballot is None:
        return
    ballot.told_all_answered = False
    ballot.due_ms = r.now + r.settings.retry_backoff_ms
    if unsupported_version and isinstance(r.state, Prospective) and r.cut is None:
        _become_candidate(r)


def _ballot(r: Replica, request_id: int, pending: PendingRequest) -> Ballot | None:
    state = r.state
    if not isinstance(state, Prospective | Candidate):
        return None
    ballot = state.ballots.get(pending.peer)
    if ballot is None or ballot.in_flight != request_id:
        return None
    ballot.in_flight = None
    return ballot


def granting(r: Replica, ballots: dict[ReplicaKey, Ballot]) -> tuple[int, ...]:
    """Node ids of the votes for this replica, its own included if it is a voter."""
    return tuple(
        key.node_id
        for key in r.voters.keys
        if key == r.key or (key in ballots and ballots[key].granted)
    )


def count(r: Replica) -> None:
    """Decide whether the round is won, lost or open."""
    state = r.state
    assert isinstance(state, Prospective | Candidate)
    majority = len(r.voters.keys) // 2 + 1
    granted = granting(r, state.ballots)
    if len(granted) >= majority:
        if not damaged_tail.may_win(r, state.ballots):
            return
        if isinstance(state, Prospective):
            _become_candidate(r)
        else:
            leader.begin(r, granted)
        return
    refused = sum(
        1
        for key, ballot in state.ballots.items()
        if key in r.voters.keys
        and ballot.answer is not None
        and not ballot.granted
        and not ballot.answer.tail_was_cut
    )
    if isinstance(state, Prospective) and len(r.voters.keys) - refused < majority:
        give_up(r)


def _become_candidate(r: Replica) -> None:
    if r.epoch >= quorum_state.EPOCH_MAX:
        r.fail("the quorum has used up its epochs: format a new quorum from a snapshot")
        return
    quorum_state.to_candidate(r)
    ask(r)
