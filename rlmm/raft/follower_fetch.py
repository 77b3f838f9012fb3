"""Fetch, on the follower's side: one request at a time, the next only when all is durable.

So a fetch offset acknowledges only records that survive a crash, for observers too: they may become
voters (KAFKA-17332). An Unattached replica uses the same request to find the leader.
"""

from __future__ import annotations

from rlmm.raft import (
    damaged_tail,
    high_watermark,
    identity,
    replica_log,
    requests,
    snapshot_download,
    voters,
)
from rlmm.raft.actions import ANOTHER_QUORUM, LEADERS_LOG
from rlmm.raft.messages import (
    NO_OFFSET,
    Batch,
    EpochEnd,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    ReplicaKey,
)
from rlmm.raft.replica import PendingRequest, Replica
from rlmm.raft.states import Follower, Unattached


def poll(r: Replica) -> None:
    """Send the next fetch if one is due."""
    state, fetch = r.state, r.fetch
    if fetch.in_flight is not None or fetch.due_ms > r.now:
        return
    if not isinstance(state, Follower | Unattached) or r.shutting_down:
        return
    download = r.download
    if download is not None and (download.writing or download.installing):
        return
    if r.log.flushed_offset < r.log.end_offset:
        replica_log.request_flush(r)
        return
    if isinstance(state, Follower):
        peer = _key_of(r, state.leader_id)
        if download is not None:
            fetch.in_flight = snapshot_download.request_piece(r, peer, download)
        else:
            fetch.in_flight = _send(r, peer, wait_ms=r.settings.fetch_wait_max_ms)
        return
    probe = _next_probe(r)
    if probe is not None:
        fetch.in_flight = _send(r, probe, wait_ms=0)


def _send(r: Replica, peer: ReplicaKey, *, wait_ms: int) -> int:
    request = FetchRequest(
        r.key,
        r.epoch,
        r.log.end_offset,
        r.log.last_epoch,
        wait_ms,
        r.settings.fetch_bytes_max,
        r.high_watermark,
        r.incarnation,
        damaged_tail.counts(r),
    )
    return requests.send(r, peer, request, r.settings.fetch_request_timeout_ms)


def _key_of(r: Replica, node_id: int) -> ReplicaKey:
    return next((key for key in r.voters.keys if key.node_id == node_id), ReplicaKey(node_id))


def _next_probe(r: Replica) -> ReplicaKey | None:
    """Voters and configured peers in turn: one of them knows the leader."""
    ids = sorted({key.node_id for key in r.voters.keys} | set(r.peers))
    others = [node_id for node_id in ids if node_id != r.key.node_id]
    if not others:
        r.fetch.due_ms = r.now + r.settings.election_timeout_ms
        return None
    r.fetch.probe += 1
    return _key_of(r, others[r.fetch.probe % len(others)])


def failed(r: Replica, request_id: int) -> None:
    if r.fetch.in_flight == request_id:
        r.fetch.in_flight = None
        r.fetch.due_ms = r.now + r.settings.retry_backoff_ms


def answered(
    r: Replica,
    request_id: int,
    pending: PendingRequest,
    response: FetchResponse | FetchSnapshotResponse,
) -> None:
    """Take a response of the leader followed now, in the request's epoch (KAFKA-18723)."""
    if r.fetch.in_flight != request_id:
        return
    r.fetch.in_flight = None
    if response.error is Error.STALE_BROKER_EPOCH:
        identity.stop_as_the_older(r, pending.peer)
        return
    state = r.state
    if not isinstance(state, Follower):
        r.fetch.due_ms = r.now + r.settings.pre_vote_retry_ms
        return
    same = response.leader_epoch == state.epoch == pending.epoch
    ours = same and response.leader_id == state.leader_id
    if not ours:
        r.fetch.due_ms = r.now + r.settings.retry_backoff_ms
    elif isinstance(response, FetchSnapshotResponse):
        if snapshot_download.answered(r, state, response):
            _leader_lives(r, state, NO_OFFSET)
    elif response.error is not Error.NONE:
        r.fetch.due_ms = r.now + r.settings.retry_backoff_ms
    elif _take(r, state, pending, response):
        _leader_lives(r, state, response.high_watermark)


def _leader_lives(r: Replica, state: Follower, leader_high_watermark: int) -> None:
    state.has_fetched = True
    r.leader_heard_ms = r.now
    if leader_high_watermark != NO_OFFSET:
        r.leader_high_watermark = leader_high_watermark
    if not state.leader_resigned:
        state.deadline_ms = r.now + r.settings.fetch_timeout_ms


def _take(r: Replica, state: Follower, pending: PendingRequest, response: FetchResponse) -> bool:
    """Take a response; False if it can't be used: then it is no sign of life of the leader."""
    if response.diverging is not None:
        return diverged(r, state, response.diverging)
    if response.snapshot is not None:
        return snapshot_download.begin(r, response.snapshot)
    if pending.fetch_offset == r.log.end_offset:
        if not _append(r, state, response.batches):
            return False
        if response.high_watermark != NO_OFFSET:
            high_watermark.advance(r, min(response.high_watermark, r.log.end_offset))
            if state.first_high_watermark == NO_OFFSET:
                state.first_high_watermark = response.high_watermark
        damaged_tail.forget_if_healed(r)
    return True


def acceptable(r: Replica, state: Follower, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """The first batches that continue this log, in epochs that neither fall nor exceed the
    leader's. A leader that reads while its log is truncated could send different ones
    (KAFKA-18723).
    """
    end, epoch, keys = r.log.end_offset, r.log.last_epoch, r.voters.keys
    for count, batch in enumerate(batches):
        if (
            batch.base_offset != end
            or batch.record_count <= 0
            or not epoch <= batch.epoch <= state.epoch
        ):
            return batches[:count]
        if batch.control:
            found = voters.behind(keys, batch)
            if found is None:
                _another_quorum(r, state, batch)
                return batches[:count]
            keys = found
        end, epoch = batch.end_offset, batch.epoch
    return batches


def _another_quorum(r: Replica, state: Follower, batch: Batch) -> None:
    r.warn(
        f"node {state.leader_id} leads epoch {state.epoch} with other voters than this log has "
        f"(at offset {batch.base_offset}; here they are {[*r.voters.keys]}): not followed. It was "
        "formatted as a quorum of its own under this cluster's id, perhaps as a voter whose disk "
        "was lost. Stop it, remove the lost voter, and format it with --no-initial-voters",
        trouble=ANOTHER_QUORUM,
    )


def _append(r: Replica, state: Follower, batches: tuple[Batch, ...]) -> bool:
    """Append the batches; True if there were none, or at least one continued the log."""
    good = acceptable(r, state, batches)
    if len(good) < len(batches):
        bad = batches[len(good)]
        end = r.log.end_offset + sum(batch.record_count for batch in good)
        why, trouble = "does not continue this log: dropped and fetched again", ""
        if bad.base_offset < end < bad.end_offset:
            trouble = LEADERS_LOG
            why = (
                f"begins below the end of this log, offset {end}, where the snapshot it began with "
                "ended inside that batch: it can't go on. Format this node anew once the leader "
                "has a newer snapshot"
            )
        r.warn(
            f"node {state.leader_id} sent a batch at offset {bad.base_offset} of epoch {bad.epoch} "
            f"that {why}",
            trouble=trouble,
        )
        r.fetch.due_ms = r.now + r.settings.pre_vote_retry_ms
    if good:
        replica_log.append(r, good)
        replica_log.request_flush(r)
    return bool(good) or not batches


def _can_be(r: Replica, diverging: EpochEnd) -> bool:
    """True for an epoch that this log has passed, or an earlier end of its last one."""
    log = r.log
    if diverging.epoch == log.last_epoch:
        return 0 <= diverging.end_offset < log.end_offset
    return 0 <= diverging.epoch < log.last_epoch and diverging.end_offset >= 0


def diverged(r: Replica, state: Follower, diverging: EpochEnd) -> bool:
    """Truncate to the offset up to which this log may still agree with the leader's; repeated
    rounds converge. Below this replica's high watermark that would undo a commit: then stop, and
    change nothing.
    """
    if not _can_be(r, diverging):
        r.warn(
            f"node {state.leader_id}, the leader, sent a diverging epoch that cannot be ("
            f"{diverging}, and this log ends at {r.log.end_offset} in epoch {r.log.last_epoch}): "
            "refused; if it goes on, stop that node and look at its log",
            trouble=LEADERS_LOG,
        )
        r.fetch.due_ms = r.now + r.settings.pre_vote_retry_ms
        return False
    own = r.log.epochs.end_offset_for(diverging.epoch, r.log.end_offset)
    end = own.end_offset
    if own.epoch == diverging.epoch:
        end = min(end, diverging.end_offset)
    if end < r.high_watermark:
        r.fail(
            f"node {state.leader_id}, leader of epoch {state.epoch}, has a log that leaves this "
            f"one at offset {end}, and everything below {r.high_watermark} is committed here: "
            "committed records were lost there or here. Stop all nodes, keep their data "
            "directories, and compare the logs with kafka-dump-log"
        )
    else:
        if end >= r.log.end_offset:
            r.fetch.due_ms = r.now + r.settings.retry_backoff_ms
        replica_log.truncate_to(r, min(end, r.log.end_offset))
    return True
