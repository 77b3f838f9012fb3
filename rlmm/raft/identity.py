"""Identity beyond the key: nodes with one id, copied directories.

A key (node id, directory id) votes once in an epoch and acknowledges one log, so two processes with
one key can undo a commit. They are distinguished by the *incarnation*: a number that is higher at
each start of a directory, with a random part, sent in Fetch and Vote (-1: not sent, as by Kafka's
replicas). The older of two is refused and stops; the newer goes on, even if it is the copy: only
the operator can know that.
"""

from __future__ import annotations

from rlmm.raft.messages import Error, FetchRequest, ReplicaKey, VoteRequest
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader

NOT_TOLD = -1
INCARNATIONS_MAX = 4096
"""Limit of the keys whose newest incarnation is remembered: recent voters, candidates, observers.
"""
WHAT_TO_DO = (
    "a data directory was copied, or restored while its node ran, or a voter was formatted again "
    "by the line of its first time. Keep one, stop the other for good, and format it anew to join"
)


def is_older(r: Replica, key: ReplicaKey, incarnation: int) -> bool:
    """True if this replica has seen a process with this key that started later."""
    if incarnation == NOT_TOLD:
        return False
    newest = r.incarnations.get(key, NOT_TOLD)
    if incarnation < newest:
        r.warn(
            f"two processes run as node {key.node_id} with the directory id {key.directory_id}; "
            f"the one that started first was refused: {WHAT_TO_DO}"
        )
        return True
    if incarnation > newest:
        if len(r.incarnations) >= INCARNATIONS_MAX:
            r.incarnations.pop(next(iter(r.incarnations)))
        r.incarnations[key] = incarnation
    return False


def check_fetch(r: Replica, leader: Leader, request: FetchRequest) -> Error:
    """Return STALE_BROKER_EPOCH for the older of two processes with one key (Kafka's name,
    KIP-903).
    """
    key = request.replica
    if key == r.key:
        r.warn(
            f"node {key.node_id} fetches from itself: another process runs with this node's "
            f"identity and was refused; {WHAT_TO_DO}"
        )
        return Error.STALE_BROKER_EPOCH
    if is_older(r, key, request.incarnation):
        return Error.STALE_BROKER_EPOCH
    if key not in leader.progress:
        _new_directory(r, key)
    return Error.NONE


def _new_directory(r: Replica, key: ReplicaKey) -> None:
    """Warn of a replica that is not a voter although its node id is a voter's."""
    voters = r.voters.keys
    if key in voters:
        return
    for voter in voters:
        if voter.node_id == key.node_id:
            r.warn(
                f"node {key.node_id} fetches with the directory id {key.directory_id}, and the "
                f"voter {voter.node_id} has {voter.directory_id}: it follows without a vote. If "
                f"its disk was replaced: `strandline quorum remove-voter {voter.node_id} "
                f"--directory-id {voter.directory_id}`, then add-voter with the new one; if two "
                "nodes run with one id, stop one and format it with another"
            )


def stop_as_the_older(r: Replica, peer: ReplicaKey) -> None:
    """Stop this process: a peer refused it for a newer one with its key."""
    r.fail(
        f"node {peer.node_id} knows another process with this node's identity (node "
        f"{r.key.node_id}, directory id {r.key.directory_id}) that started later: this one stops; "
        f"{WHAT_TO_DO}"
    )


def refuses_second_process(r: Replica, request: VoteRequest) -> bool:
    """True if this epoch's vote went to a different process with the candidate's key, or may have:
    the vote stored by an earlier process of this node has no incarnation. A candidate that restarts
    never stands in the same epoch again, and one that asks again after this node's restart soon
    stands in the next: a correct candidate is not refused for long.
    """
    if r.state.voted != request.candidate or request.incarnation == NOT_TOLD:
        return False
    epoch, incarnation = r.vote_given or (NOT_TOLD, NOT_TOLD)
    if epoch != request.epoch:
        return True
    if incarnation in (NOT_TOLD, request.incarnation):
        return False
    candidate = request.candidate
    r.warn(
        f"two processes ask for a vote in epoch {epoch} as node {candidate.node_id}, directory id "
        f"{candidate.directory_id}: the second was refused; {WHAT_TO_DO}"
    )
    return True


def refused_voter_key(r: Replica, asked: ReplicaKey, asker: str) -> Error:
    """Return NONE if the request is for this voter."""
    if asked.node_id != r.key.node_id:
        r.warn(
            f"{asker} asks node {asked.node_id} at the address of node {r.key.node_id}: refused; "
            "check the addresses in `strandline quorum describe`"
        )
        return Error.INVALID_VOTER_KEY
    if asked.directory_id not in ("", r.key.directory_id):
        r.warn(
            f"{asker} asks the voter {asked.node_id} with the directory id {asked.directory_id}, "
            f"and this node's directory is {r.key.directory_id}: refused, it does not vote for a "
            f"directory that is gone. `strandline quorum remove-voter {asked.node_id} "
            f"--directory-id {asked.directory_id}` while the others are a majority, then add-voter "
            "with the new one"
        )
        return Error.INVALID_VOTER_KEY
    return Error.NONE
