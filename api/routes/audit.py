"""The audit: deletions and moves by this node or by all nodes, with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.http.admission import Context
from api.http.asking_all import Question, ask_all, parts_of
from api.http.cursors import CURSOR_CHARACTERS_MAX, decode_cursor, encode_cursor
from api.http.merging import ENDED, Lines, decode_places, encode_places, merge_by_time
from api.http.validation import (
    INT64_MAX,
    PAGE_LIMIT_DEFAULT,
    EpochNumber,
    PageCursor,
    PageLimit,
    parse_uuid,
)
from api.models.audit import AuditLineView, AuditPageView, NodeAuditLineView, WholeAuditView
from api.models.cluster_parts import NodePartView
from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction, AuditLine
from rlm.node_files.audit_log import AuditPosition

router = APIRouter(tags=["audit"])
LISTING = "audit"
WHOLE_LISTING = "audit of the cluster"


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a request's query."""

    query: Mapping[str, object]
    matches: Callable[[AuditLine], bool]


async def _wanted(
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
) -> Filters:
    query = {"topic": topic, "partition": partition, "action": action, "segment": segment}
    segment_id = None if segment is None else parse_uuid(segment, "segment")
    return Filters(query, _filter(topic, partition, action, segment_id))


Wanted = Annotated[Filters, Depends(_wanted)]


@router.get("/audit", summary="Deletions and moves of this node, newest first")
async def list_audit(
    context: Context,
    wanted: Wanted,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> AuditPageView:
    """Each node has its own audit, kept up to a number of bytes; the oldest lines are dropped
    first.
    """
    before = None if cursor is None else _position(wanted.query, cursor)
    page = await context.audit.newest(before, limit, wanted.matches)

    def cursor_of(place: AuditPosition) -> str:
        return encode_cursor(LISTING, wanted.query, (place.file, place.offset))

    return AuditPageView(
        lines=[
            AuditLineView.of_line(line, cursor_of(begin))
            for line, begin in zip(page.lines, page.begins, strict=True)
        ],
        unreadable=page.unreadable,
        cursor=cursor_of(page.start),
        next_cursor=None if page.before is None else cursor_of(page.before),
    )


@router.get("/cluster/audit", summary="Deletions and moves of all nodes, newest first")
async def list_whole_audit(
    request: Request,
    context: Context,
    wanted: Wanted,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> WholeAuditView:
    """Lines in order of time, each node's by its own clock. If a node does not answer, its lines
    come on the first page for which it answers again.
    """
    places = dict[int, str]()
    if cursor is not None:
        (text,) = decode_cursor(WHOLE_LISTING, wanted.query, cursor, (str,))
        places = decode_places(str(text))

    def query(node_id: int) -> dict[str, object] | None:
        place = places.get(node_id)
        return None if place == ENDED else {**wanted.query, "limit": limit, "cursor": place}

    async def own() -> AuditPageView:
        return await list_audit(context, wanted, limit, places.get(context.identity.node_id))

    told = await ask_all(request, Question("/v1/audit", query, AuditPageView), own)
    parts = {
        each.node_id: Lines(each.part.cursor, each.part.lines, each.part.next_cursor)
        for each in told
        if each.part is not None
    }
    page = merge_by_time(parts, places, limit)
    next_cursor = _whole_cursor(wanted, page.places) if page.more else None
    return WholeAuditView(
        nodes=NodePartView.all_of(told),
        lines=[NodeAuditLineView.of(line, node=node_id) for node_id, line in page.lines],
        unreadable=sum(each.unreadable for each in parts_of(told)),
        next_cursor=next_cursor,
    )


def _whole_cursor(wanted: Filters, places: Mapping[int, str]) -> str:
    cursor = encode_cursor(WHOLE_LISTING, wanted.query, (encode_places(places),))
    if len(cursor) > CURSOR_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a cursor has no room for the places of {len(places)} nodes: request all lines in "
            "one page, or each node's own (`GET /v1/audit`)",
            field="limit",
        )
    return cursor


def _position(filters: Mapping[str, object], cursor: str) -> AuditPosition:
    file, offset = (int(each) for each in decode_cursor(LISTING, filters, cursor, (int, int)))
    if not 0 <= file <= INT64_MAX or not 0 <= offset <= INT64_MAX:
        raise InvalidRequest(
            "not a cursor of this list: pass `next_cursor` unchanged", field="cursor"
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
