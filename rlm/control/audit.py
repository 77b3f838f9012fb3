"""The audit: one line for every step that takes something away, or moves who may take it away.

A line about objects is on disk before they go. `AuditLog` in `rlm/node_files/audit_log.py` keeps
and lists the lines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import CopyEvent, HoldReleased, LogStartRecorded, LostRangeRecorded
from rlmm.segment import RemoteLogSegmentMetadata

WHY_CHARACTERS_MAX = 1_000


class AuditAction(StrEnum):
    """The audited steps. Values are stable: files and the HTTP interface have them."""

    LOG_START_MOVED = "log_start_moved"
    EXPIRY_MARKED = "expiry_marked"
    TRASH_RESTORED = "trash_restored"
    TRASH_EMPTIED = "trash_emptied"
    RETENTION_RELEASED = "retention_released"
    LOST_RANGE = "lost_range"
    SEGMENT_MARKED = "segment_marked"
    OBJECTS_DELETED = "objects_deleted"
    ORPHAN_DELETED = "orphan_deleted"
    PARTITION_MARKED = "partition_marked"
    PARTITION_DELETE_STARTED = "partition_delete_started"
    PARTITION_DELETE_FINISHED = "partition_delete_finished"
    DELETE_UNDONE = "delete_undone"
    HOLD_RELEASED = "hold_released"
    PREFIX_TAKEN_OVER = "prefix_taken_over"
    SEGMENT_MISSING = "segment_missing"
    RECONCILED = "reconciled"
    COLLECTION = "collection"
    RETENTION_STOPPED = "retention_stopped"
    RETENTION_ACCEPTED = "retention_accepted"
    POLICY_SET = "policy_set"
    PAUSED = "paused"
    RESUMED = "resumed"
    CLAIM_RESET = "claim_reset"
    MODE_SET = "mode_set"
    SEGMENT_REPAIRED = "segment_repaired"
    REPAIR = "repair"
    OFFSETS_SKIPPED = "offsets_skipped"
    GAPS_ALLOWED = "gaps_allowed"
    RECORDS_DELETED = "records_deleted"
    QUORUM_CHANGED = "quorum_changed"
    LIMITS_CHANGED = "limits_changed"
    NODE_REMOVED = "node_removed"
    SETTING_CHANGED = "setting_changed"
    ERASURE = "erasure"
    MOVE_PHASE = "move_phase"


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One step. `at_ms` since the epoch; offsets are inclusive, -1 for none.

    `partition` and `segment_id` None: a step of a whole store or node. `why` is a sentence, `by`
    the node id, or who asked over HTTP.
    """

    at_ms: int
    action: AuditAction
    partition: TopicIdPartition | None
    segment_id: Uuid | None
    start_offset: int
    end_offset: int
    size_bytes: int
    why: str
    by: str

    @classmethod
    def of_segment(
        cls, at_ms: int, action: AuditAction, row: RemoteLogSegmentMetadata, why: str, by: str
    ) -> AuditLine:
        """A step that concerns one segment, by its row."""
        id_, end, size = row.segment_id, row.end_offset, row.size_bytes
        return cls(at_ms, action, id_.partition, id_.id, row.start_offset, end, size, why, by)


def audit_line_of(event: CopyEvent, *, at_ms: int, by: str) -> AuditLine | None:
    """The line for an event that took something away or moved a log start; else None. Deletes of
    objects are not among them: their lines are written first.
    """
    match event:
        case LogStartRecorded():
            return AuditLine(
                at_ms, AuditAction.LOG_START_MOVED, event.partition, None,
                event.offset, -1, -1, "set for the first time", by,
            )  # fmt: skip
        case LostRangeRecorded():
            return AuditLine(
                at_ms, AuditAction.LOST_RANGE, event.partition, None,
                event.start, event.end, -1, event.why, by,
            )  # fmt: skip
        case HoldReleased() if event.missed:
            return AuditLine(
                at_ms, AuditAction.HOLD_RELEASED, event.partition, None,
                event.start, event.end, event.size_bytes, event.why, by,
            )  # fmt: skip
        case _:
            return None


Audit = Callable[[AuditLine], None]
"""Takes a line about a finished step. Returns at once and never raises."""

KeepAudit = Callable[[AuditLine], Awaitable[None]]
"""Returns once the line is on disk; awaited before a step that can't be undone. RetryLater: the
line could not be written, so the step must not be taken.
"""


def no_audit(_line: AuditLine) -> None:
    """An audit that drops its lines, for callers that take nothing away."""


async def keep_no_audit(_line: AuditLine) -> None:
    """An audit that drops its lines, for callers that wait for the line."""
