"""Views of the whole cluster, each merged from all nodes' parts."""

from __future__ import annotations

from operator import attrgetter
from typing import TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel

from api.http.admission import Context
from api.http.asking_all import Question, ask_all, parts_of
from api.http.merging import merge
from api.http.validation import PAGE_LIMIT_DEFAULT, PageCursor, PageLimit
from api.models.cluster import ClusterView, TierTotals
from api.models.cluster_parts import NodePartView
from api.models.partition_rows import NodePartitionsView, WholePartitionsView, told_best
from api.models.views import (
    LaggingView,
    LagSumView,
    NodeLagSum,
    NodeLagView,
    NodeRunningView,
    NodeSizesView,
    RunningSumView,
    TopicSizeView,
    WholeLagView,
    WholeProblemsView,
    WholeRunningView,
    WholeSizesView,
    worst_of,
)
from api.routes.cluster import describe_cluster
from api.routes.node_views import (
    Filters,
    cursor_of,
    node_lag,
    node_partitions,
    node_running,
    node_sizes,
)

router = APIRouter(prefix="/cluster", tags=["cluster"])

Part = TypeVar("Part", bound=BaseModel)


def _paged(path: str, kind: type[Part], limit: int, cursor: str | None) -> Question[Part]:
    return Question(path, lambda _: {"limit": limit, "cursor": cursor}, kind)


@router.get("/lag", summary="Partitions of all nodes that are behind, and the sum of all")
async def whole_lag(
    request: Request,
    context: Context,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> WholeLagView:
    """The sums are over the nodes that answered; `nodes` lists the ones that did not."""
    told = await ask_all(
        request,
        _paged("/v1/node/lag", NodeLagView, limit, cursor),
        lambda: node_lag(request, context, limit, cursor),
    )
    parts = parts_of(told)
    groups, more = merge(
        ((each.partitions, each.next_cursor is not None) for each in parts),
        attrgetter("key"),
        limit,
    )
    page: list[LaggingView] = [group[0] for group in groups]
    return WholeLagView(
        nodes=NodePartView.all_of(told),
        total=LagSumView.of_sums([each.total for each in parts]),
        by_node=[
            NodeLagSum.of(each.part.total, node=each.node_id)
            for each in told
            if each.part is not None
        ],
        worst=worst_of(each for part in parts for each in part.worst),
        partitions=page,
        next_cursor=cursor_of("lag", page[-1].key if more else None),
    )


@router.get("/sizes", summary="Bytes on all nodes' machines and in the tier, by topic")
async def whole_sizes(
    request: Request,
    context: Context,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> WholeSizesView:
    """Machines of nodes that did not answer are missing; `nodes` lists them."""
    told = await ask_all(
        request,
        _paged("/v1/node/sizes", NodeSizesView, limit, cursor),
        lambda: node_sizes(request, context, limit, cursor),
    )
    groups, more = merge(
        (
            (
                [(each.metadata_offset or 0, topic) for topic in each.part.topics],
                each.part.next_cursor is not None,
            )
            for each in told
            if each.part is not None
        ),
        lambda each: each[1].topic,
        limit,
    )
    topics = [TopicSizeView.of_nodes(group) for group in groups]
    return WholeSizesView(
        nodes=NodePartView.all_of(told),
        tier=TierTotals.of_totals(context.manager.totals()),
        local=[each.local for each in parts_of(told)],
        topics=topics,
        next_cursor=cursor_of("sizes", (topics[-1].topic,) if more else None),
    )


@router.get("/partitions", summary="Partitions of all nodes, with filters")
async def whole_partitions(
    request: Request,
    context: Context,
    filters: Filters,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> WholePartitionsView:
    """Every partition once, from the node that reports its lag; `nodes` lists the missing nodes."""
    asked = filters._asdict()
    told = await ask_all(
        request,
        Question(
            "/v1/node/partitions",
            lambda _: {**asked, "limit": limit, "cursor": cursor},
            NodePartitionsView,
        ),
        lambda: node_partitions(request, context, filters, limit, cursor),
    )
    groups, more = merge(
        ((each.partitions, each.next_cursor is not None) for each in parts_of(told)),
        attrgetter("key"),
        limit,
    )
    page = [told_best(group) for group in groups]
    return WholePartitionsView(
        nodes=NodePartView.all_of(told),
        partitions=page,
        next_cursor=cursor_of("partitions", page[-1].key if more else None, asked),
    )


@router.get("/running", summary="Copies and deletions that all nodes have under way")
async def whole_running(
    request: Request,
    context: Context,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> WholeRunningView:
    """Work under way on the nodes that answered; `nodes` lists the ones that did not."""
    told = await ask_all(
        request,
        _paged("/v1/node/running", NodeRunningView, limit, cursor),
        lambda: node_running(context, limit, cursor),
    )
    parts = parts_of(told)
    groups, more = merge(
        ((each.running, each.next_cursor is not None) for each in parts), attrgetter("key"), limit
    )
    page = [group[0] for group in groups]
    return WholeRunningView(
        nodes=NodePartView.all_of(told),
        total=RunningSumView.of_sums([each.total for each in parts]),
        running=page,
        next_cursor=cursor_of("running", page[-1].key if more else None),
    )


@router.get("/problems", summary="Problems of all nodes")
async def whole_problems(request: Request, context: Context) -> WholeProblemsView:
    """Problems of the nodes that answered; `nodes` lists the ones that did not."""
    told = await ask_all(
        request,
        Question("/v1/cluster", lambda _: {}, ClusterView),
        lambda: describe_cluster(context),
    )
    return WholeProblemsView.of_parts(NodePartView.all_of(told), parts_of(told))
