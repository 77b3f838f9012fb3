"""Plans an admin's DeleteRecords in a partition's tier: all records below an offset. Pure.

The tier's log start moves to the offset, as Kafka's DeleteRecords moves a log's. Readers get no
record below it any more. Segments that end below it are deleted by the next pass of retention; the
one that contains the offset stays whole until the log start passes its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_formats.errors import Conflict, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from rlm.retention.retention_plan import LogStartMove
from rlmm.partition_state import Mode, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True)
class RecordDeletion:
    """`move` is None if the log start is at the offset or above. `segments` and `size_bytes` count
    the segments that are deleted as a whole; `kept`: the last offset of the segment that contains
    the new log start, -1 if none does. `held_back`: why nothing is deleted now.
    """

    log_start_offset: int
    move: LogStartMove | None
    segments: int
    size_bytes: int
    kept: int
    held_back: str | None = None


def plan_record_deletion(
    state: PartitionState, rows: Iterable[RemoteLogSegmentMetadata], before: int
) -> RecordDeletion:
    """Plan the deletion of the records below `before` (exclusive). Conflict: this node must not
    move the log start. InvalidRequest: `before` is above the tier.
    """
    if state.mode is not Mode.SIDECAR:
        raise Conflict(
            f"the mode of {state.partition} is {state.mode.name}: only in SIDECAR its records are "
            "deleted here",
            reason="MODE",
        )
    if state.delete_state is not None or state.adopting:
        what = (
            "is being deleted: its log start stays"
            if state.delete_state is not None
            else "was restored from a snapshot, and segments of its stores are not recorded yet: "
            "repeat this once its leader's node has claimed it"
        )
        raise Conflict(f"{state.partition} {what}", reason="CONFLICT")
    if before > max(state.next_offset, state.log_start_offset):
        raise InvalidRequest(
            f"the tier of {state.partition} ends at offset {state.next_offset} (exclusive): name "
            "that or a lower one; records not copied yet are deleted on the broker",
            field="before_offset",
        )
    if before <= state.log_start_offset or not state.lineage:
        return RecordDeletion(state.log_start_offset, None, 0, 0, -1)
    below = kept = size_bytes = 0
    for row in rows:
        if row.state is not SegmentState.COPY_SEGMENT_FINISHED or row.start_offset >= before:
            continue
        if row.end_offset < before:
            below, size_bytes = below + 1, size_bytes + row.size_bytes
        else:
            kept = max(kept, row.end_offset)
    epoch = epoch_for_offset(state.lineage, before)
    move = LogStartMove(before, state.lineage[0].epoch if epoch is None else epoch)
    return RecordDeletion(state.log_start_offset, move, below, size_bytes, kept or -1)
