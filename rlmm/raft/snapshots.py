"""A replica's snapshots: which may be taken, which are served, where the log may start (KIP-630).

Every replica takes its own. The snapshot (0, 0) of a formatted node is never sent.
"""

from __future__ import annotations

from collections.abc import Hashable

from rlmm.raft import progress
from rlmm.raft.events import LogStartAdvanced, SnapshotsDeleted, SnapshotTaken
from rlmm.raft.leaving import public_leader_id
from rlmm.raft.messages import (
    Error,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotId,
    SnapshotRead,
)
from rlmm.raft.replica import Replica
from rlmm.raft.requests import impossible, leader_only
from rlmm.raft.states import Leader


def refusal(r: Replica, snapshot: SnapshotId) -> str | None:
    """The reason why no snapshot with this id may be taken here; None if it may."""
    log = r.log
    if snapshot.end_offset > r.high_watermark:
        return f"it ends above the high watermark {r.high_watermark}"
    if snapshot.end_offset < log.start_offset or snapshot.end_offset <= 0:
        return f"it ends below the log start {log.start_offset}"
    if snapshot.end_offset < r.voters.known_from:
        return (
            f"its voters are not known: the log begins at {log.start_offset}, and what named them "
            f"is in the snapshot that ends at {r.voters.known_from}"
        )
    if snapshot in log.snapshots:
        return "it exists"
    epoch = log.epochs.epoch_of(snapshot.end_offset - 1)
    if epoch != snapshot.epoch:
        return f"the record before its end is of epoch {epoch}"
    return None


def taken(r: Replica, event: SnapshotTaken) -> None:
    why = refusal(r, event.snapshot)
    if why is not None and event.snapshot not in r.log.snapshots:
        r.warn(f"snapshot {event.snapshot} is not used: {why}")
        return
    r.log.snapshots[event.snapshot] = event.size_bytes


def deleted(r: Replica, event: SnapshotsDeleted) -> None:
    log = r.log
    for snapshot in event.snapshots:
        log.snapshots.pop(snapshot, None)
    newest = log.latest_snapshot
    if log.start_offset > 0 and (newest is None or newest.end_offset < log.start_offset):
        r.fail(f"no snapshot covers the log below its start {log.start_offset} any more")


def log_start_advanced(r: Replica, event: LogStartAdvanced) -> None:
    """Move the log's start; only committed records that a snapshot covers may be removed."""
    log, newest, start = r.log, r.log.latest_snapshot, event.log_start_offset
    if start <= log.start_offset:
        return
    if newest is None or newest.end_offset < start or r.high_watermark < start:
        r.fail(
            f"the log was cut up to {start}, but the newest snapshot is {newest} and the high "
            f"watermark {r.high_watermark}"
        )
        return
    log.epochs.advance_start(start, log.end_offset)
    log.start_offset = start


def wanted(r: Replica) -> tuple[SnapshotId, ...]:
    """Snapshots that a replica downloads from this leader, or after whose end it still fetches the
    log, oldest first. A replica that has not fetched for `download_forgotten_ms` needs none.
    """
    if not isinstance(r.state, Leader):
        return ()
    since = r.now - r.settings.download_forgotten_ms
    recent = {each.snapshot for each in r.state.progress.values() if each.last_fetch_ms >= since}
    return tuple(sorted(snapshot for snapshot in r.log.snapshots if snapshot in recent))


def serve(r: Replica, correlation: Hashable, request: FetchSnapshotRequest) -> None:
    """Send a piece of a snapshot. The request shows that the replica is alive, and acknowledges
    nothing.
    """
    error = leader_only(r, request.replica.node_id, request.epoch)
    state = r.state
    size = r.log.snapshots.get(request.snapshot)
    if error is Error.NONE:
        if size is None:
            error = Error.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < size:
            error = Error.POSITION_OUT_OF_RANGE
        elif request.bytes_max <= 0:  # a negative number of bytes reads the whole file
            asked = f"asks for {request.bytes_max} bytes of a snapshot"
            error = impossible(r, request.replica.node_id, asked)
    if error is not Error.NONE or size is None or not isinstance(state, Leader):
        refused = FetchSnapshotResponse(error, public_leader_id(r), r.epoch, request.snapshot)
        r.respond(correlation, refused)
        return
    known = progress.of(r, state, request.replica)
    if known is not None:
        progress.fetched(r, known)
        known.snapshot = request.snapshot
    bytes_max = min(request.bytes_max, r.settings.fetch_snapshot_bytes_max)
    response = FetchSnapshotResponse(
        Error.NONE,
        state.leader_id,
        state.epoch,
        request.snapshot,
        size,
        request.position,
        read=SnapshotRead(request.snapshot, request.position, bytes_max),
    )
    r.respond(correlation, response)
