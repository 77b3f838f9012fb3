"""Records proposed to the leader: appended one after the other, acknowledged when committed.

A proposal for a past epoch is refused; one that was appended and then lost its leader ends as
"unknown" (`leaving.py`). The queue is bounded: refusal is the back-pressure.
"""

from __future__ import annotations

from rlmm.raft import leader_append
from rlmm.raft.actions import ProposalFailed, ProposalsCommitted
from rlmm.raft.events import Propose
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import Batch, Error
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader, PendingProposal


def propose(r: Replica, event: Propose) -> None:
    leader = r.state
    if not isinstance(leader, Leader) or event.epoch not in (None, leader.epoch):
        _refuse(r, event, Error.NOT_LEADER_OR_FOLLOWER)
        return
    if r.shutting_down or leader.transfer is not None:
        _refuse(r, event, Error.BROKER_NOT_AVAILABLE)
        return
    if len(leader.proposals) >= r.settings.proposals_max:
        _refuse(r, event, Error.THROTTLING_QUOTA_EXCEEDED)
        return
    offset = first = r.log.end_offset
    epoch, bytes_max = leader.epoch, r.settings.batch_bytes_max
    batches = []
    for each in event.batches:
        if each.size_bytes > bytes_max or each.record_count <= 0:
            bad = Error.MESSAGE_TOO_LARGE if each.record_count > 0 else Error.INVALID_REQUEST
            _refuse(r, event, bad)
            return
        batches.append(Batch(offset, epoch, each.record_count, each.size_bytes, each.payload))
        offset += each.record_count
    if not batches:
        _refuse(r, event, Error.INVALID_REQUEST)
        return
    leader.proposals.append(PendingProposal(event.handle, first, offset))
    leader_append.append(r, leader, tuple(batches))


def _refuse(r: Replica, event: Propose, error: Error) -> None:
    leader_id = public_leader_id(r)
    r.emit(ProposalFailed(event.handle, error, appended=False, leader_id=leader_id))


def acknowledge(r: Replica, leader: Leader) -> None:
    """Acknowledge proposals below the high watermark, after it moved: they survive the loss of any
    minority.
    """
    proposals, high_watermark = leader.proposals, leader.high_watermark
    done = []
    while proposals and proposals[0].end_offset <= high_watermark:
        proposal = proposals.popleft()
        done.append((proposal.handle, proposal.base_offset))
    if done:
        r.emit(ProposalsCommitted(tuple(done), leader.epoch))
