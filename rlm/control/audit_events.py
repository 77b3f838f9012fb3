"""Selects the events of the remote log manager that the audit has. Pure."""

from __future__ import annotations

from rlm.control.audit import AuditAction, AuditLine
from rlm.control.run_events import CopyEvent, HoldReleased, LogStartRecorded, LostRangeRecorded


def audit_line_of(event: CopyEvent, *, at_ms: int, by: str) -> AuditLine | None:
    """The line for an event that took something away or moved a log start; else None. Whoever
    removes objects audits them before.
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
