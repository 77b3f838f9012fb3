"""Changes of the log, as the core orders and remembers them.

`generation` counts truncations and installed snapshots: a flush that was started before one of them
does not prove that the records now at those offsets are durable, and its completion is ignored.
"""

from __future__ import annotations

from rlmm.raft import damaged_tail
from rlmm.raft.actions import AppendBatches, Flush, TruncateTo, VotersChanged
from rlmm.raft.events import FlushCompleted
from rlmm.raft.messages import Batch, SnapshotId, VoterSet, VotersRecord
from rlmm.raft.replica import Replica


def append(r: Replica, batches: tuple[Batch, ...]) -> None:
    """Append at the log end. A VotersRecord takes effect at once, committed or not (KIP-853)."""
    log = r.log
    for batch in batches:
        assert batch.base_offset == log.end_offset, f"{batch} at {log.end_offset}"
        log.epochs.append(batch.epoch, batch.base_offset)
        log.end_offset = batch.end_offset
    r.emit(AppendBatches(batches))
    for batch in batches:
        for index, record in enumerate(batch.control):
            if isinstance(record, VotersRecord):
                r.voters.append(batch.base_offset + index, record.voters)
                r.emit(VotersChanged(record.voters, r.voters.latest_offset))


def request_flush(r: Replica) -> None:
    """Request one flush of everything that is not durable yet."""
    log = r.log
    if log.flush_requested < log.end_offset:
        log.flush_requested = log.end_offset
        r.emit(Flush(log.last_epoch, log.end_offset, log.generation))


def flushed(r: Replica, event: FlushCompleted) -> bool:
    """Take a flush; True if more of the log is durable now. A completion of a different generation
    or epoch is about a log that was replaced (etcd's stale-append race).
    """
    log = r.log
    if event.generation != log.generation or not log.flushed_offset < event.offset:
        return False
    if event.offset > log.end_offset or log.epochs.epoch_of(event.offset - 1) != event.epoch:
        return False
    log.flushed_offset = event.offset
    return True


def truncate_to(r: Replica, end_offset: int) -> None:
    """Remove the uncommitted tail and the voter sets in it. Invariant: never below the high
    watermark.
    """
    log = r.log
    assert r.high_watermark <= end_offset <= log.end_offset
    log.generation += 1
    log.end_offset = end_offset
    log.flushed_offset = min(log.flushed_offset, end_offset)
    log.flush_requested = log.flushed_offset
    log.epochs.truncate_to(end_offset)
    r.emit(TruncateTo(end_offset, log.generation))
    if r.voters.truncate_to(end_offset):
        r.emit(VotersChanged(r.voters.latest, r.voters.latest_offset))
    request_flush(r)


def replace_by_snapshot(
    r: Replica, snapshot: SnapshotId, size_bytes: int, voters: VoterSet | None
) -> None:
    """Replace the whole log by the snapshot; no record follows it."""
    log = r.log
    end = snapshot.end_offset
    log.start_offset = log.end_offset = log.flushed_offset = log.flush_requested = end
    log.epochs.reset(end, snapshot.epoch)
    log.snapshots[snapshot] = size_bytes
    r.voters.reset(end, voters)
    r.emit(VotersChanged(r.voters.latest, r.voters.latest_offset))
    damaged_tail.forget_if_healed(r)
