"""The audit: deletes and moves of this node, and their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Query

from api.http.admission import Context
from api.http.cursors import decode_cursor, encode_cursor
from api.http.validation import (
    INT64_MAX,
    PAGE_LIMIT_DEFAULT,
    EpochNumber,
    PageCursor,
    PageLimit,
    parse_uuid,
)
from api.models.audit import AuditLineView, AuditPageView
from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction, AuditLine
from rlm.node_files.audit_log import AuditPosition

router = APIRouter(prefix="/audit", tags=["audit"])
LISTING = "audit"


@router.get("", summary="Deletes and moves of this node, newest first")
async def list_audit(
    context: Context,
    topic: Annotated[
        str | None, Query(max_length=1_000, description="Only lines about this topic.")
    ] = None,
    partition: Annotated[
        EpochNumber | None, Query(description="Only lines about this partition.")
    ] = None,
    action: Annotated[AuditAction | None, Query(description="Only this action.")] = None,
    segment: Annotated[
        str | None,
        Query(max_length=1_000, description="Only lines about this remote log segment id."),
    ] = None,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> AuditPageView:
    """Each node has its own audit, kept up to a number of bytes; the oldest lines go first."""
    segment_id = None if segment is None else parse_uuid(segment, "segment")
    filters = {"topic": topic, "partition": partition, "action": action, "segment": segment}
    page = await context.audit.newest(
        None if cursor is None else _position(filters, cursor),
        limit,
        _filter(topic, partition, action, segment_id),
    )
    before = page.before
    return AuditPageView(
        lines=[AuditLineView.of_line(line) for line in page.lines],
        unreadable=page.unreadable,
        next_cursor=(
            None
            if before is None
            else encode_cursor(LISTING, filters, (before.file, before.offset))
        ),
    )


def _position(filters: Mapping[str, object], cursor: str) -> AuditPosition:
    file, offset = (int(each) for each in decode_cursor(LISTING, filters, cursor, (int, int)))
    if not 0 <= file <= INT64_MAX or not 0 <= offset <= INT64_MAX:
        raise InvalidRequest(
            "no such place in this list: pass `next_cursor` unchanged", field="cursor"
        )
    return AuditPosition(file, offset)


def _filter(
    topic: str | None, partition: int | None, action: AuditAction | None, segment_id: Uuid | None
) -> Callable[[AuditLine], bool]:
    def matches(line: AuditLine) -> bool:
        tip = line.partition
        return (
            (topic is None or (tip is not None and tip.topic == topic))
            and (partition is None or (tip is not None and tip.partition == partition))
            and (action is None or line.action is action)
            and (segment_id is None or line.segment_id == segment_id)
        )

    return matches
