"""Voters whose tail was cut by recovery (`rlmm/log/recovery.py`), and voters that remember nothing.

Such a replica may have acknowledged records that it no longer has. Until its log again *reaches*
what it had, it does not help to elect a leader that may lack them:

- it gives votes (and pre-votes) only to logs that reach the old end, or, when the candidate reports
  that every voter answered the round, to the longest one;
- it stands for election only if every voter answers and none has a longer log.

A log *reaches* (epoch, end offset) if it is greater or equal in this order, as everywhere in Raft:
a later epoch's log contains all that was committed before. The record of the cut is durable.

A voter that was formatted and has followed no leader since is either new, with its whole quorum, or
has lost its disk and was formatted again with the same command: it cannot distinguish the two. So
no log reaches its cut, and the first election of a quorum needs an answer from every voter. It has
lost its epoch as well, so a deposed leader that has not noticed this yet might count it. Therefore
its fetches *count* only for a leader that it voted for. Any other leader sends it a high watermark
only after a commit above its first fetch that does not count it: then a majority of other voters
follows that leader.
"""

from __future__ import annotations

from rlmm.raft import quorum_state
from rlmm.raft.actions import CommandDone, LogCut
from rlmm.raft.events import AcceptCut
from rlmm.raft.messages import NO_OFFSET, Error, ReplicaKey
from rlmm.raft.replica import InitialState, Replica
from rlmm.raft.states import Ballot, Candidate, Follower, Leader, Prospective

NO_MEMORY = LogCut(quorum_state.EPOCH_MAX, 2**63 - 1)
"""The cut of a voter that does not know which records it had: no log reaches it."""


def remembered(r: Replica, initial: InitialState) -> LogCut | None:
    """The cut to remember from this start on; None for a sole voter, which has no other log to wait
    for.
    """
    before = initial.quorum.cut if initial.quorum else NO_MEMORY if r.is_voter else None
    cuts = [cut for cut in (before, initial.cut) if cut is not None]
    if not cuts or r.is_sole_voter:
        return None
    cut = max(cuts, key=lambda each: (each.epoch, each.old_end_offset))
    return None if reaches(cut, r.log.last_epoch, r.log.flushed_offset) else cut


def reaches(cut: LogCut, last_epoch: int, end_offset: int) -> bool:
    return (last_epoch, end_offset) >= (cut.epoch, cut.old_end_offset)


def forbids_vote(r: Replica, last_epoch: int, end_offset: int, *, all_answered: bool) -> bool:
    """True if the cut forbids a vote that the log comparison would allow."""
    return r.cut is not None and not all_answered and not reaches(r.cut, last_epoch, end_offset)


def told_end(r: Replica, candidate: ReplicaKey, *, pre_vote: bool) -> int:
    """The log end in the answer to a candidate. A voter that voted for a different candidate in the
    epoch, itself included, reports none, so that the round is not answered by all: that candidate
    may have won, or may still win, by the vote of a replica that has forgotten its vote. (A
    pre-vote elects no leader.)
    """
    elsewhere = not pre_vote and r.state.voted not in (None, candidate)
    return NO_OFFSET if elsewhere else r.log.end_offset


def longest_of_all(r: Replica, ballots: dict[ReplicaKey, Ballot]) -> bool:
    """True if every other voter has reported its log end in this round, and none is longer."""
    mine = (r.log.last_epoch, r.log.end_offset)
    return all(
        ballot.answer is not None
        and ballot.answer.last_offset >= 0
        and (ballot.answer.last_epoch, ballot.answer.last_offset) <= mine
        for ballot in ballots.values()
    )


def heard_of_cut(r: Replica, voter: ReplicaKey) -> None:
    """Take a voter's report that its tail was cut. The first one in a round makes this replica ask
    all other voters again: their answers may be from before the loss, and from before a different
    leader fetched the records from that voter.
    """
    state = r.state
    if not isinstance(state, Prospective | Candidate) or voter not in state.ballots:
        return
    if state.ballots[voter].said_cut:
        return
    state.ballots[voter].said_cut = True
    for key, ballot in state.ballots.items():
        if key != voter:
            ballot.answer, ballot.granted = None, False
            ballot.in_flight, ballot.due_ms = None, r.now


def may_win(r: Replica, ballots: dict[ReplicaKey, Ballot]) -> bool:
    """True if a majority is enough for this replica."""
    return r.cut is None or longest_of_all(r, ballots)


def warn_of_silence(r: Replica, ballots: dict[ReplicaKey, Ballot]) -> None:
    """Warn of the voters that did not answer the ended round, if it needed all answers."""
    silent = [str(key.node_id) for key, ballot in ballots.items() if ballot.answer is None]
    if r.cut is not None and silent:
        lost = (
            "was formatted and has followed no leader since, so it may have lost what it "
            "acknowledged"
            if r.cut == NO_MEMORY
            else f"had its log up to offset {r.cut.old_end_offset} and lost the end of it"
        )
        r.warn(
            f"no election yet: this voter {lost}, and every voter must answer before it may lead. "
            f"No answer from node {', '.join(silent)}: start it, or look at its log. If its data "
            "is gone for good: `strandline quorum accept-cut` here"
        )


def counts(r: Replica) -> bool:
    """True if this replica's fetches acknowledge the records below their offset."""
    voted = r.state.voted
    return r.cut != NO_MEMORY or (voted is not None and voted.node_id == r.state.leader_id)


def forget_if_healed(r: Replica) -> None:
    """Forget the cut once no record is missing. Called when more of the log is durable, when a
    leader of this epoch sent its high watermark, and when this replica leads and has committed.

    That leader has committed in its epoch, so all records ever acknowledged lie below its high
    watermark: a log that is durable up to there has all of them.
    """
    cut = r.cut
    if cut is None:
        return
    durable = r.log.flushed_offset
    caught_up = (
        isinstance(r.state, Follower)
        and (r.epoch >= cut.epoch or cut == NO_MEMORY)
        and 0 <= r.state.first_high_watermark <= durable
    )
    leads = isinstance(r.state, Leader) and r.state.established
    # Of the durable part: a later epoch's records that are not synced may be gone after a crash.
    if caught_up or leads or reaches(cut, r.log.epochs.epoch_of(durable - 1), durable):
        forget(r)


def forget(r: Replica) -> None:
    r.cut = None
    quorum_state.persist(r)


def accept(r: Replica, event: AcceptCut) -> None:
    """Accept the cut, on the operator's command: the log that reaches the old end is gone."""
    if r.cut is None:
        message = "nothing is missing on this node: there is nothing to accept"
        r.emit(CommandDone(event.handle, Error.INVALID_REQUEST, message))
        return
    had = "had" if r.cut == NO_MEMORY else f"had up to offset {r.cut.old_end_offset}"
    r.warn(f"the operator accepts the cut: records that only this node {had} are lost")
    forget(r)
    r.emit(CommandDone(event.handle, Error.NONE, "this node votes and stands for election again"))
