"""The leader's knowledge of each replica that fetches (Kafka's LeaderState.ReplicaState).

A replica is identified by its key: the same node id with a different directory is a different
replica, and counts as an observer until it is made a voter.
"""

from __future__ import annotations

from rlmm.raft.messages import (
    NO_OFFSET,
    DescribeQuorumResponse,
    Error,
    FetchRequest,
    ReplicaDescription,
    ReplicaKey,
    SnapshotId,
)
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader, Progress


def of(r: Replica, leader: Leader, key: ReplicaKey) -> Progress | None:
    """The replica's progress, created at its first fetch; None: there are too many observers."""
    progress = leader.progress.get(key)
    if progress is None:
        voters = r.voters.keys
        observers = sum(1 for known in leader.progress if known not in voters)
        if key not in voters and observers >= r.settings.observers_max:
            return None
        progress = leader.progress[key] = Progress()
    return progress


def fetched(r: Replica, progress: Progress) -> None:
    """Record a fetch: it shows that the replica is alive and still follows."""
    progress.last_fetch_ms = r.now


def acknowledged(r: Replica, progress: Progress, end_offset: int) -> None:
    """Take a valid fetch: everything below `end_offset` is durable at the replica, nothing above.
    It may be less than before, after the replica's tail was cut; commits remain valid.
    """
    leader_end = r.log.end_offset
    if end_offset >= leader_end:
        progress.last_caught_up_ms = r.now
    elif end_offset >= progress.leader_end_at_last_fetch >= 0:
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.acknowledged_ms)
    progress.leader_end_at_last_fetch, progress.acknowledged_ms = leader_end, r.now
    progress.end_offset = end_offset
    if _needs_no_snapshot(r, progress.snapshot, end_offset):
        progress.snapshot = None


def _needs_no_snapshot(r: Replica, wanted: SnapshotId | None, end_offset: int) -> bool:
    """True if a cut removes no record that a replica with all below `end_offset` lacks: it has all
    committed records, or all below the end of a snapshot that was taken after the one it
    downloaded. Directly after the downloaded one it may still lack much, and the next snapshot
    could overtake it.
    """
    if end_offset >= r.high_watermark:
        return True
    newest = r.log.latest_snapshot
    if wanted is None or newest is None:
        return True
    return newest > wanted and end_offset >= newest.end_offset


def begins_uncounted(r: Replica, progress: Progress, request: FetchRequest) -> bool:
    """Record whether the replica's fetches count (`damaged_tail.py`). True: this is the first fetch
    of its process, and does not count.
    """
    same_life = progress.incarnation == request.incarnation
    first = not request.counts and (progress.counts or not same_life)
    if progress.counts != request.counts:
        progress.end_offset = NO_OFFSET  # earlier fetches that did not count stay uncounted
    progress.counts, progress.incarnation = request.counts, request.incarnation
    if first:
        progress.first_seen_end = r.log.end_offset
    return first


def told_high_watermark(leader: Leader, request: FetchRequest) -> int:
    """The high watermark for the response. An uncounted replica gets none until a record appended
    after its first fetch is committed: that proves that a majority without it follows this leader.
    """
    known = None if request.counts else leader.progress.get(request.replica)
    if known is None or leader.high_watermark > known.first_seen_end:
        return leader.high_watermark
    return NO_OFFSET


def forget_idle_observers(r: Replica, leader: Leader) -> None:
    oldest_ms = r.now - r.settings.observer_forgotten_ms
    idle = [
        key
        for key, progress in leader.progress.items()
        if key not in r.voters.keys and progress.last_fetch_ms < oldest_ms
    ]
    for key in idle:
        del leader.progress[key]


def by_end_offset(r: Replica, leader: Leader) -> tuple[ReplicaKey, ...]:
    """Other voters, the most caught-up first: the order of succession."""
    others = [key for key in r.voters.keys if key != r.key]
    ends = {key: leader.progress[key].end_offset for key in others if key in leader.progress}
    return tuple(sorted(others, key=lambda key: (-ends.get(key, NO_OFFSET), key)))


def describe(r: Replica) -> DescribeQuorumResponse:
    """The answer to DescribeQuorum; only a leader has the replicas' progress."""
    leader = r.state
    if not isinstance(leader, Leader):
        return DescribeQuorumResponse(Error.NOT_LEADER_OR_FOLLOWER, leader.leader_id, r.epoch)
    keys = r.voters.keys
    observers = [key for key in leader.progress if key not in keys]
    return DescribeQuorumResponse(
        Error.NONE,
        leader.leader_id,
        leader.epoch,
        leader.high_watermark,
        tuple(_described(r, leader, key) for key in keys),
        tuple(_described(r, leader, key) for key in sorted(observers)),
    )


def _described(r: Replica, leader: Leader, key: ReplicaKey) -> ReplicaDescription:
    if key == r.key:
        return ReplicaDescription(key, r.log.end_offset, r.now, r.now)
    known = leader.progress.get(key) or Progress()
    return ReplicaDescription(key, known.end_offset, known.last_fetch_ms, known.last_caught_up_ms)
