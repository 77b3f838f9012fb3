"""An audit of a few lines."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction, AuditLine
from rlm.node_files.audit_log import AuditLog, AuditPage, AuditPosition, Matches

ORDERS = TopicIdPartition("orders", Uuid(b"orders-topic-id-"), 2)
PAYMENTS = TopicIdPartition("payments", Uuid(b"payments--topic-"), 0)
SEGMENT = Uuid(b"a-segment-of-ids")


def some_lines() -> list[AuditLine]:
    """Oldest first."""
    deleted = AuditAction.OBJECTS_DELETED
    return [
        AuditLine(1, AuditAction.COLLECTION, None, None, -1, -1, 7, "3 orphans", "boss"),
        AuditLine(2, AuditAction.SEGMENT_MARKED, ORDERS, SEGMENT, 0, 9, 70, "old", "node 1"),
        AuditLine(3, deleted, ORDERS, SEGMENT, 0, 9, 70, "old", "node 1"),
        AuditLine(4, deleted, PAYMENTS, Uuid(b"another-segment-"), 5, 6, 80, "old", "node 1"),
    ]


@dataclass
class FakeAudit(AuditLog):
    """As `AuditLog.newest`; a position is the number of lines before it."""

    lines: list[AuditLine] = field(default_factory=some_lines)

    def note(self, line: AuditLine, /) -> None:
        self.lines.append(line)

    async def newest(
        self, before: AuditPosition | None, limit: int, matches: Matches, /
    ) -> AuditPage:
        end = len(self.lines) if before is None else before.offset
        fitting = [at for at in range(end - 1, -1, -1) if matches(self.lines[at])]
        shown = fitting[:limit]
        more = len(fitting) > limit
        return AuditPage(
            AuditPosition(1, end),
            tuple(self.lines[at] for at in shown),
            tuple(AuditPosition(1, at) for at in shown),
            AuditPosition(1, shown[-1]) if more else None,
            unreadable=0,
        )
