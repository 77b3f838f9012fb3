"""Compares a follower's log with the leader's up to its fetch offset (KIP-595, KIP-630). Pure.

Kafka's `validateOffsetAndEpoch`.
"""

from __future__ import annotations

from rlmm.raft.messages import EpochEnd, SnapshotId
from rlmm.raft.replica import LogView


def validate(
    log: LogView, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | SnapshotId | None:
    """Compare a follower's log with the leader's. None: the logs agree, so the fetch offset
    acknowledges everything below it. EpochEnd: they diverge; the largest epoch <= the follower's in
    the leader's log, and its end there. SnapshotId: the records that the follower lacks are no
    longer in the log.

    The epoch before the log start is used in place of Kafka's "epoch of the oldest snapshot":
    Kafka's log always starts at a snapshot, ours at a segment below one.
    """
    snapshot = log.latest_snapshot
    if fetch_offset == 0 and log.start_offset == 0 and (snapshot is None or not snapshot[0]):
        return None
    epochs = log.epochs
    if snapshot is not None and snapshot.end_offset > 0:
        below = fetch_offset < log.start_offset or fetch_offset == 0
        at_start = log.start_offset > 0 and (
            (fetch_offset == log.start_offset and last_fetched_epoch != epochs.base_epoch)
            or last_fetched_epoch < epochs.base_epoch
        )
        if below or at_start:
            return snapshot
    end = epochs.end_offset_for(last_fetched_epoch, log.end_offset)
    if end.epoch != last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None
