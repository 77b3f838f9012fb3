"""Voters whose tail was cut by recovery (design 5.1 (6)).

Such a replica may have acknowledged records that it no longer has. Until its log again *reaches*
what it had, it does not help to elect anybody who may lack them:

- it gives votes (and pre-votes) only to logs that reach the old end, or, when the candidate says
  that every voter answered the round, to the longest one;
- it stands only if every voter answers and none has a longer log.

To *reach* (epoch, end offset) is to be greater or equal in this order, as everywhere in Raft: a
later epoch's log contains whatever was committed before. The memory of the cut is durable.
"""

from __future__ import annotations

from rlmm.raft import quorum_state
from rlmm.raft.actions import CommandDone, LogCut
from rlmm.raft.events import AcceptCut
from rlmm.raft.messages import Error, ReplicaKey
from rlmm.raft.replica import Replica
from rlmm.raft.states import Ballot, Follower


def remembered(r: Replica, stored: LogCut | None, fresh: LogCut | None) -> LogCut | None:
    """The cut to remember from this start on; a sole voter has nobody else's log to wait for."""
    cuts = [cut for cut in (stored, fresh) if cut is not None]
    if not cuts or r.is_sole_voter:
        return None
    cut = max(cuts, key=lambda each: (each.epoch, each.old_end_offset))
    return None if reaches(cut, r.log.last_epoch, r.log.flushed_offset) else cut


def reaches(cut: LogCut, last_epoch: int, end_offset: int) -> bool:
    return (last_epoch, end_offset) >= (cut.epoch, cut.old_end_offset)


def forbids_vote(r: Replica, last_epoch: int, end_offset: int, *, all_answered: bool) -> bool:
    """Whether the cut stands against a vote that the log comparison would allow."""
    return r.cut is not None and not all_answered and not reaches(r.cut, last_epoch, end_offset)


def longest_of_all(r: Replica, ballots: dict[ReplicaKey, Ballot]) -> bool:
    """Every other voter has said in this round how long its log is, and none is longer."""
    mine = (r.log.last_epoch, r.log.end_offset)
    return all(
        ballot.answer is not None
        and ballot.answer.last_offset >= 0
        and (ballot.answer.last_epoch, ballot.answer.last_offset) <= mine
        for ballot in ballots.values()
    )


def may_win(r: Replica, ballots: dict[ReplicaKey, Ballot]) -> bool:
    """Whether a majority is enough for this replica."""
    return r.cut is None or longest_of_all(r, ballots)


def forget_if_healed(r: Replica, leader_high_watermark: int = -1) -> None:
    """Called when more of the log is durable, or a leader of this epoch told its high watermark.

    That leader has committed in its epoch, so everything ever acknowledged to anybody lies below
    its high watermark: what is durable here up to there lacks nothing.
    """
    cut = r.cut
    if cut is None:
        return
    caught_up = (
        isinstance(r.state, Follower)
        and r.epoch >= cut.epoch
        and 0 <= leader_high_watermark <= r.log.flushed_offset
    )
    if caught_up or reaches(cut, r.log.last_epoch, r.log.flushed_offset):
        forget(r)


def forget(r: Replica) -> None:
    r.cut = None
    quorum_state.persist(r)


def accept(r: Replica, event: AcceptCut) -> None:
    """The operator's way out when the log that reaches the old end is gone for good."""
    if r.cut is None:
        message = "no tail is missing here: there is nothing to accept"
        r.emit(CommandDone(event.handle, Error.INVALID_REQUEST, message))
        return
    r.warn(
        f"the operator accepts the cut: what this node had up to offset {r.cut.old_end_offset} and "
        "no other voter has is lost"
    )
    forget(r)
    r.emit(CommandDone(event.handle, Error.NONE, "this node votes and stands again"))
