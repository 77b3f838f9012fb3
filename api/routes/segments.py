"""Segments: list, look up, describe, history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field

from api.http.admission import Context, context_in
from api.http.api_limits import HISTORY_ENTRIES_DEFAULT, HISTORY_ENTRIES_MAX
from api.http.cursors import decode_cursor, encode_cursor
from api.http.listing import first_after
from api.http.validation import (
    INT32_MAX,
    INT64_MAX,
    PAGE_LIMIT_DEFAULT,
    EpochNumber,
    OffsetNumber,
    PageCursor,
    PageLimit,
    Whole,
    parse_uuid,
)
from api.models.base import IncarnationView, known
from api.models.scrub import SegmentDetail
from api.models.segments import (
    SegmentChange,
    SegmentHistory,
    SegmentLookup,
    SegmentPage,
    SegmentStateName,
    SegmentView,
)
from api.routes.path_parameters import FoundPartition, FoundSegment, ParsedSegmentId
from kafka_formats.errors import InvalidRequest, NotFound, RetryLater
from rlmm.manager.segment_history import HistoryEntry
from rlmm.rows.queries import ListPosition, list_position
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}/segments", tags=["segments"])


class SegmentFilters(NamedTuple):
    """The filters of a list of segments, all of which apply; None: no filter."""

    state: SegmentStateName | None
    epoch: int | None
    offset: int | None
    since_ms: int | None

    def matches(self, segment: RemoteLogSegmentMetadata) -> bool:
        """True if the segment matches all filters but `epoch`."""
        return (
            (self.state is None or segment.state.name == self.state.value)
            and (self.offset is None or segment.start_offset <= self.offset <= segment.end_offset)
            and (self.since_ms is None or segment.max_timestamp_ms >= self.since_ms)
        )


async def segment_filters(
    state: Annotated[
        SegmentStateName | None, Query(description="Only segments in this state.")
    ] = None,
    epoch: Annotated[
        EpochNumber | None, Query(description="Only segments with records of this leader epoch.")
    ] = None,
    offset: Annotated[
        OffsetNumber | None, Query(description="Only segments that contain this offset.")
    ] = None,
    since_ms: Annotated[
        OffsetNumber | None,
        Query(description="Only segments with records at or after this time (ms since the epoch)."),
    ] = None,
) -> SegmentFilters:
    """The filters of the query."""
    return SegmentFilters(state, epoch, offset, since_ms)


@router.get("", summary="Segments of a partition, by leader epoch and start offset")
async def list_segments(
    context: Context,
    tip: FoundPartition,
    asked: Annotated[SegmentFilters, Depends(segment_filters)],
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> SegmentPage:
    """Segments in all states, unfinished and superseded ones included; all filters apply."""
    filters = asked._asdict()
    listing = f"segments of {tip}"
    after = None if cursor is None else _position(listing, filters, cursor)
    key = partial(list_position, leader_epoch=asked.epoch)
    segments, more = await first_after(
        context.manager.list_remote_log_segments(tip, asked.epoch, after=after),
        key,
        None,  # the listing begins after it
        limit,
        context.sleep,
        asked.matches,
    )
    next_cursor = None
    if more:
        by, start, id_ = key(segments[-1])
        next_cursor = encode_cursor(listing, filters, (by, start, str(id_)))
    return SegmentPage(
        segments=[SegmentView.of_segment(segment) for segment in segments],
        next_cursor=next_cursor,
    )


def _position(listing: str, filters: Mapping[str, object], cursor: str) -> ListPosition:
    """The list position in a cursor; InvalidRequest(cursor) if no page ever returned it."""
    by, start, id_ = decode_cursor(listing, filters, cursor, (int, int, str))
    if not 0 <= int(by) <= INT32_MAX or not 0 <= int(start) <= INT64_MAX:
        raise InvalidRequest(
            "not a cursor of this list: pass `next_cursor` unchanged", field="cursor"
        )
    return ListPosition(int(by), int(start), parse_uuid(str(id_), "cursor"))


@router.get("/lookup", summary="The segment that serves an offset of a leader epoch")
async def look_up_segment(
    request: Request,
    tip: FoundPartition,
    epoch: Annotated[EpochNumber, Query(description="Leader epoch.")],
    offset: OffsetNumber,
    with_txn_index: Annotated[
        bool,
        Query(
            description="Find the first segment at or after the offset that has a transaction "
            "index."
        ),
    ] = False,
) -> SegmentLookup:
    """Kafka's remoteLogSegmentMetadata and nextSegmentWithTxnIndex. 404: no segment serves the
    offset.
    """
    context = context_in(request)
    look_up = (
        context.manager.next_segment_with_txn_index
        if with_txn_index
        else context.manager.remote_log_segment_metadata
    )
    found = look_up(tip, epoch, offset)
    if found is not None:
        return SegmentLookup(
            segment=SegmentView.of_segment(found.metadata), valid_until=found.valid_until
        )
    # A broker that believes such a 404 would move its log start and lose the tier.
    if not context.manager.is_ready(tip):
        raise RetryLater(
            f"this node is not ready for {tip}, so it may not know the segment yet: ask again later"
        )
    raise NotFound(f"no finished segment of {tip} serves offset {offset} of leader epoch {epoch}")


@router.get("/{segment_id}", summary="One segment")
async def describe_segment(context: Context, segment: FoundSegment) -> SegmentDetail:
    """All metadata of the segment, with lengths and checksums of its objects, and findings of
    scrubs.
    """
    scrub = context.scrubs.of(segment.metadata.segment_id.partition)
    return SegmentDetail.of_scrubbed(segment.metadata, scrub)


@router.get("/{segment_id}/history", summary="The records about one segment, oldest first")
async def segment_history(
    context: Context,
    tip: FoundPartition,
    segment_id: ParsedSegmentId,
    limit: Annotated[int, Field(ge=1, le=HISTORY_ENTRIES_MAX), Whole] = HISTORY_ENTRIES_DEFAULT,
) -> SegmentHistory:
    """The history reaches as far back as the metadata log; deleted segments have one, too."""
    entries = await context.manager.segment_history(
        RemoteLogSegmentId(tip, segment_id), limit=limit
    )
    if not entries and context.manager.segment(tip, segment_id) is None:
        raise NotFound(
            f"{tip} has no segment {segment_id}, and the metadata log has no record about it"
        )
    return SegmentHistory(segment_id=str(segment_id), changes=list(_changes(entries)))


def _changes(entries: Sequence[HistoryEntry]) -> Iterator[SegmentChange]:
    for entry in entries:
        record = entry.record
        if isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            yield SegmentChange(
                metadata_offset=entry.offset,
                metadata_epoch=entry.epoch,
                timestamp_ms=entry.timestamp_ms,
                record=type(record).__name__,
                state=SegmentStateName(record.state.name),
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp_ms,
                token=known(record.token),
                writer=None if record.writer is None else IncarnationView.of(record.writer),
            )
