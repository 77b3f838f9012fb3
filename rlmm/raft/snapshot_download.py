"""Downloading a snapshot from the leader, piece by piece, and replacing the log by it.

Each piece must be of the requested snapshot and position. A download survives lost responses and a
change of leader: equal ids mean equal bytes on every replica. When it is complete it replaces the
*whole* log, and only then does the replica fetch again.
"""

from __future__ import annotations

from rlmm.raft import high_watermark, replica_log, requests
from rlmm.raft.actions import LEADERS_LOG, InstallSnapshot, WriteSnapshotChunk
from rlmm.raft.events import SnapshotChunkWritten, SnapshotDamaged, SnapshotInstalled
from rlmm.raft.messages import (
    Error,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ReplicaKey,
    SnapshotId,
)
from rlmm.raft.replica import Download, Replica
from rlmm.raft.states import Follower


def acceptable(r: Replica, snapshot: SnapshotId) -> bool:
    """True for a snapshot that ends above all records committed here."""
    return snapshot.end_offset > r.high_watermark and 0 <= snapshot.epoch <= r.epoch


def begin(r: Replica, snapshot: SnapshotId) -> bool:
    """Begin to download `snapshot`, since the leader's log no longer has the records that this
    replica needs. False: the snapshot is refused.
    """
    if not acceptable(r, snapshot):
        r.warn(
            f"node {r.state.leader_id} offers snapshot {snapshot}, but this node has committed up "
            f"to {r.high_watermark}: refused; compare the two nodes' logs",
            trouble=LEADERS_LOG,
        )
        r.fetch.due_ms = r.now + r.settings.pre_vote_retry_ms
        return False
    if r.download is None or r.download.snapshot != snapshot:
        r.download = Download(snapshot)
    return True


def request_piece(r: Replica, peer: ReplicaKey, download: Download) -> int:
    request = FetchSnapshotRequest(
        r.key, r.epoch, download.snapshot, download.position, r.settings.fetch_snapshot_bytes_max
    )
    return requests.send(r, peer, request, r.settings.fetch_request_timeout_ms)


def wanted(download: Download, response: FetchSnapshotResponse) -> bool:
    """True for the requested piece of the requested snapshot, if it is not past its end."""
    return (
        response.snapshot == download.snapshot
        and response.position == download.position
        and download.size_bytes in (-1, response.size_bytes)
        and 0 < response.payload_bytes <= response.size_bytes - response.position
    )


def answered(r: Replica, state: Follower, response: FetchSnapshotResponse) -> bool:
    """Take a piece; the caller has checked that it is from the followed leader. True: it was the
    requested one.
    """
    download = r.download
    if download is None or download.writing or download.installing:
        return False
    if response.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE):
        # The leader has a newer one by now: start again from Fetch.
        r.download = None
        r.fetch.due_ms = r.now + r.settings.retry_backoff_ms
        return False
    if response.error is not Error.NONE:
        r.fetch.due_ms = r.now + r.settings.retry_backoff_ms
        return False
    if not wanted(download, response):
        r.warn(
            f"node {state.leader_id} sent {response.snapshot} at {response.position}, but "
            f"{download.snapshot} at {download.position} was requested: the download starts again"
        )
        r.download = None
        r.fetch.due_ms = r.now + r.settings.pre_vote_retry_ms
        return False
    download.size_bytes = response.size_bytes
    download.writing = True
    r.emit(
        WriteSnapshotChunk(
            download.snapshot, download.position, response.payload, response.payload_bytes
        )
    )
    return True


def written(r: Replica, event: SnapshotChunkWritten) -> None:
    """Fetch the next piece, or install the snapshot, after a piece was stored."""
    download = r.download
    if download is None or download.snapshot != event.snapshot or not download.writing:
        return
    download.writing = False
    download.position = event.end_position
    if download.position == download.size_bytes:
        _install(r, download)


def _install(r: Replica, download: Download) -> None:
    """Install the snapshot. It is checked again first, since leadership may have moved since the
    download began.
    """
    if not isinstance(r.state, Follower) or not acceptable(r, download.snapshot):
        r.download = None
        return
    download.installing = True
    r.log.generation += 1
    r.log.flush_requested = r.log.flushed_offset
    known = r.voters.keys if r.voters.in_log else ()
    r.emit(InstallSnapshot(download.snapshot, download.size_bytes, r.log.generation, known))


def installed(r: Replica, event: SnapshotInstalled) -> None:
    download = r.download
    assert download is not None, f"{event} was not asked for"
    assert download.installing, f"{event} was not asked for"
    assert download.snapshot == event.snapshot, f"{event} was not asked for"
    r.download = None
    replica_log.replace_by_snapshot(r, event.snapshot, event.size_bytes, event.voters)
    high_watermark.advance(r, event.snapshot.end_offset)
    _resume(r)


def damaged(r: Replica, event: SnapshotDamaged) -> None:
    if r.download is not None and r.download.snapshot == event.snapshot:
        r.warn(
            f"snapshot {event.snapshot} arrived damaged, or belongs to a different quorum (see the "
            "log): it is fetched again",
            trouble=LEADERS_LOG,
        )
        r.download = None
        replica_log.request_flush(r)
        _resume(r)
        r.fetch.due_ms += r.settings.pre_vote_retry_ms


def _resume(r: Replica) -> None:
    """Follow on after the installation, which may have taken long: restart the leader's timeout."""
    r.fetch.due_ms = r.now
    if isinstance(r.state, Follower):
        r.state.deadline_ms = r.now + r.settings.fetch_timeout_ms
