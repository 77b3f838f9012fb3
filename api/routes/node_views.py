"""This node's parts of the views of the whole cluster: lag, sizes, work under way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query, Request

from api.http.admission import MIN_OFFSET_HEADER, Context
from api.http.context import ApiContext
from api.http.cursors import CursorKey, decode_cursor, encode_cursor
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.listing import first_after, page_after, statuses_of
from api.http.survey import Survey, partition_key
from api.http.validation import PAGE_LIMIT_DEFAULT, PageCursor, PageLimit, PartitionNumber
from api.models.partition_rows import NodePartitionsView, Only, PartitionRow
from api.models.views import (
    LaggingView,
    LagSumView,
    LocalSizeView,
    NodeLagView,
    NodeRunningView,
    NodeSizesView,
    RunningSumView,
    RunningView,
    TopicSizeView,
)
from rlm.copy.partition_status import CopyUnderWay, PartitionStatus
from rlm.delete.clean_up_tasks import PendingCleanUp

router = APIRouter(prefix="/node", tags=["node"])

SHAPES: dict[str, tuple[type, ...]] = {
    "partitions": (str, int, str),
    "lag": (str, int, str, int),
    "sizes": (str,),
    "running": (str, int, str, str, int),
}
"""The types of each list's sort key. A node's list and the whole cluster's have the same
cursors.
"""


def place_of(
    listing: str, cursor: str | None, filters: Mapping[str, object] = MappingProxyType({})
) -> CursorKey | None:
    """The key after which the page begins. InvalidRequest: not a cursor of this list."""
    return None if cursor is None else decode_cursor(listing, filters, cursor, SHAPES[listing])


def cursor_of(
    listing: str, last: CursorKey | None, filters: Mapping[str, object] = MappingProxyType({})
) -> str | None:
    """The cursor of the page after the one that ends with `last`; None: there is none."""
    return None if last is None else encode_cursor(listing, filters, last)


class PartitionFilters(NamedTuple):
    """The filters of a list of partitions, all of which apply; None: no filter."""

    topic: str | None
    partition: int | None
    contains: str | None
    only: Only | None

    def matches(self, status: PartitionStatus) -> bool:
        """True if the partition matches all filters."""
        tip = status.partition
        return (
            (self.topic is None or tip.topic == self.topic)
            and (self.partition is None or tip.partition == self.partition)
            and (self.contains is None or self.contains in tip.topic)
            and (self.only is None or self.only.holds(status))
        )


async def partition_filters(
    topic: Annotated[
        str | None, Query(max_length=249, description="Only partitions of this topic.")
    ] = None,
    partition: Annotated[
        PartitionNumber | None, Query(description="Only partitions of this number.")
    ] = None,
    contains: Annotated[
        str | None, Query(max_length=249, description="Only topics with this in their name.")
    ] = None,
    only: Annotated[
        Only | None,
        Query(description="Only partitions that are behind or blocked, or have lost offsets."),
    ] = None,
) -> PartitionFilters:
    """The filters of the query."""
    return PartitionFilters(topic, partition, contains, only)


Filters = Annotated[PartitionFilters, Depends(partition_filters)]


async def _survey(request: Request, context: ApiContext) -> tuple[Survey, int]:
    """A survey and its age; the answer gets its metadata offset."""

    async def gather() -> tuple[int, list[PartitionStatus]]:
        offset, rlm = context.manager.applied_offset, context.rlm
        return offset, await statuses_of(rlm.partitions(), rlm.status, context.sleep)

    at_least = int(request.headers.get(MIN_OFFSET_HEADER, -1))
    survey, age_ms = await context.surveys.recent(gather, context.monotonic, at_least=at_least)
    request.scope[METADATA_OFFSET_SCOPE_KEY] = survey.metadata_offset
    return survey, age_ms


@router.get("/lag", summary="Partitions of this node that are behind, and the sum of all")
async def node_lag(
    request: Request,
    context: Context,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> NodeLagView:
    """Facts are gathered anew about every second, less often with thousands of partitions."""
    after, node_id = place_of("lag", cursor), context.identity.node_id
    survey, age_ms = await _survey(request, context)

    def key(status: PartitionStatus) -> CursorKey:
        return *partition_key(status), node_id

    page, more = page_after(survey.behind, key, after, limit)
    return NodeLagView(
        survey_age_ms=age_ms,
        total=LagSumView.of_survey(survey),
        worst=[LaggingView.of_status(node_id, each) for each in survey.worst],
        partitions=[LaggingView.of_status(node_id, each) for each in page],
        next_cursor=cursor_of("lag", key(page[-1]) if more else None),
    )


@router.get("/sizes", summary="Bytes on this node's machine and in the tier, by topic")
async def node_sizes(
    request: Request,
    context: Context,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> NodeSizesView:
    """Facts are gathered anew about every second, less often with thousands of partitions."""
    after, node_id = place_of("sizes", cursor), context.identity.node_id
    survey, age_ms = await _survey(request, context)
    page, more = page_after(survey.topics, lambda each: (each.topic,), after, limit)
    return NodeSizesView(
        survey_age_ms=age_ms,
        local=LocalSizeView.of_topics(node_id, survey.topics),
        topics=[TopicSizeView.of(each) for each in page],
        next_cursor=cursor_of("sizes", (page[-1].topic,) if more else None),
    )


@router.get("/running", summary="Copies and deletions that this node has under way")
async def node_running(
    context: Context, limit: PageLimit = PAGE_LIMIT_DEFAULT, cursor: PageCursor = None
) -> NodeRunningView:
    """Deletions are of expired segments, and of remains of unfinished copies."""
    after, node_id = place_of("running", cursor), context.identity.node_id
    copies = context.rlm.copies_under_way()
    removals = context.rlm.removals_under_way()

    def key(work: CopyUnderWay | PendingCleanUp) -> CursorKey:
        id_ = work.segment_id
        tip = id_.partition
        return tip.topic, tip.partition, str(tip.topic_id), str(id_.id), node_id

    under_way: list[CopyUnderWay | PendingCleanUp] = [*copies, *removals]
    page, more = page_after(sorted(under_way, key=key), key, after, limit)
    return NodeRunningView(
        total=RunningSumView(
            copies=len(copies),
            bytes_done=sum(each.bytes_done for each in copies),
            bytes_total=sum(each.bytes_total for each in copies),
            deletions=len(removals),
        ),
        running=[RunningView.of_work(node_id, each) for each in page],
        next_cursor=cursor_of("running", key(page[-1]) if more else None),
    )


@router.get("/partitions", summary="Partitions that this node knows, with filters")
async def node_partitions(
    request: Request,
    context: Context,
    filters: Filters,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> NodePartitionsView:
    """Facts are gathered anew about every second, less often with thousands of partitions."""
    asked = filters._asdict()
    after = place_of("partitions", cursor, asked)
    survey, age_ms = await _survey(request, context)
    begin = 0 if after is None else bisect_right(survey.partitions, after, key=partition_key)
    page, more = await first_after(
        islice(survey.partitions, begin, None),
        partition_key,
        None,  # the slice begins there
        limit,
        context.sleep,
        filters.matches,
    )
    return NodePartitionsView(
        survey_age_ms=age_ms,
        partitions=[PartitionRow.of_status(context.identity.node_id, each) for each in page],
        next_cursor=cursor_of("partitions", partition_key(page[-1]) if more else None, asked),
    )
