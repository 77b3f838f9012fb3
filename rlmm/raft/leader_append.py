"""Appending as leader: write, wake the parked fetches, then flush.

This order lets followers fetch and sync while the leader's own sync runs. Only durable records
count (`high_watermark.py`), in the leader's own log too. But a majority of followers is enough to
commit, so a leader whose disk hangs would accept records for ever: `leader.disk_hangs` ends that.
"""

from __future__ import annotations

from rlmm.raft import parked_fetches, replica_log
from rlmm.raft.messages import Batch, ControlRecord
from rlmm.raft.replica import Replica
from rlmm.raft.states import Leader
from rlmm.raft.timers import NEVER_MS


def append(r: Replica, leader: Leader, batches: tuple[Batch, ...]) -> None:
    """Append batches, which begin at the log end, in the leader's epoch."""
    replica_log.append(r, batches)
    barriers = leader.barriers
    if barriers.uncovered:
        # Any record appended after a barrier's arrival serves it as well as a no-op.
        barriers.groups.append((r.log.end_offset, tuple(barriers.uncovered)))
        barriers.uncovered = []
    parked_fetches.answer_all(r, leader)
    replica_log.request_flush(r)
    if leader.sync_deadline_ms == NEVER_MS:
        leader.sync_deadline_ms = r.now + r.settings.check_quorum_ms


def append_control(r: Replica, leader: Leader, records: tuple[ControlRecord, ...]) -> int:
    """Append one batch of control records; its base offset."""
    offset = r.log.end_offset
    batch = Batch(offset, leader.epoch, len(records), 0, control=records)
    append(r, leader, (batch,))
    return offset
