"""Jobs: work that takes longer than an answer may."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from api.http.admission import VOUCHED_SCOPE_KEY, Context, require
from api.http.asking_all import Question, ask_all
from api.http.context import ApiContext
from api.http.cursors import decode_cursor, encode_cursor
from api.http.tokens import Principal, Role
from api.http.validation import PAGE_LIMIT_DEFAULT, PageCursor, PageLimit, parse_uuid
from api.models.erasure import EraseRequest, ErasureView
from api.models.jobs import CollectionView, CollectRequest
from api.models.repair import RepairAsked, RepairView
from api.models.scrub import PartitionScrubView, ScrubKept, ScrubPage, ScrubPost
from api.models.stores import StoresView
from api.routes.stores import list_stores

router = APIRouter(prefix="/jobs", tags=["jobs"])
SCRUBS = "scrubs"


@router.post("/collect", summary="Find garbage in all stores, or delete it")
async def collect(
    context: Context,
    body: CollectRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> CollectionView:
    """Needs the role admin. One collection runs at a time (409 RUNNING); request its state by its
    id until it has ended. Any node can do it, and one is enough.
    """
    return CollectionView.of_job(context.collector.start(body.request(), principal.name))


@router.post(
    "/scrub",
    summary="Post the findings of a scrub",
    dependencies=[Depends(require(Role.OPERATE))],
)
async def keep_scrub(context: Context, body: ScrubPost) -> ScrubKept:
    """Needs the role operate; `strandline pipeline scrub` sends it. This node keeps the findings,
    also over restarts. Earlier damage is kept until a scrub has read the segment again.
    """
    results = [each.result() for each in body.partitions]
    known = [
        result
        for result in results
        if context.manager.partition_state(result.partition) is not None
    ]
    await context.scrubs.add(known)
    return ScrubKept(kept=len(known), unknown=len(results) - len(known))


@router.get("/scrub", summary="The last scrub of each partition, and damage")
async def list_scrubs(
    context: Context,
    topic: Annotated[str | None, Query(max_length=1_000, description="Only this topic.")] = None,
    damaged: Annotated[bool, Query(description="Only partitions with damage.")] = False,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> ScrubPage:
    """Scrubs that were posted to this node."""
    filters = {"topic": topic, "damaged": damaged}
    after = None
    if cursor is not None:
        place = decode_cursor(SCRUBS, filters, cursor, (str, int, str))
        after = (str(place[0]), int(place[1]), str(place[2]))
    page = context.scrubs.listed(topic, damaged=damaged, after=after, limit=limit + 1)
    more = len(page) > limit
    page = page[:limit]
    return ScrubPage(
        partitions=[PartitionScrubView.of_scrub(result) for result in page],
        damaged_segments=context.scrubs.damaged_segments(),
        next_cursor=encode_cursor(SCRUBS, filters, page[-1].key) if more else None,
    )


@router.post("/repair", summary="Find damaged segments, or copy them again")
async def repair(
    context: Context,
    body: RepairAsked,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> RepairView:
    """Needs the role admin. Reads every byte of the partitions that this node leads. One repair
    runs at a time (409 RUNNING, which names its id); request its state by its id until it has
    ended.
    """
    return RepairView.of_run(context.repairs.start(body.request(), principal.name))


@router.get("/repair/{job_id}", summary="A repair: its progress or its end")
async def describe_repair(
    context: Context,
    job_id: Annotated[str, Path(max_length=1_000, description="The job's id, a Kafka Uuid.")],
) -> RepairView:
    """The last eight repairs, automatic ones included, are remembered until the node stops."""
    return RepairView.of_run(context.repairs.run_of(parse_uuid(job_id, "job_id")))


@router.post("/erase", summary="Delete every version of deleted segments, and report")
async def erase(
    request: Request,
    context: Context,
    body: EraseRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> ErasureView:
    """Needs the role admin; any node will do. An erasure does not order a deletion: 409 NOT_ORDERED
    before the topic is marked for deletion, or before the log start has passed the offset. It waits
    until the segments are deleted, then deletes the versions that the stores keep of them. One
    erasure runs at a time (409 RUNNING, which names its id). It ends as `incomplete` if another
    node that answers, or a segment of any topic, names a store that is missing in this node's
    settings.
    """
    asked = body.request(await _stores_elsewhere(request, context))
    return ErasureView.of_job(await context.erasures.start(asked, principal.name))


async def _stores_elsewhere(request: Request, context: ApiContext) -> dict[str, str]:
    """The stores of other nodes' settings. A forwarded request is not asked around: the forwarding
    node knows its own settings.
    """
    if request.scope.get(VOUCHED_SCOPE_KEY) is not None:
        return {}
    question = Question("/v1/stores", lambda _: {"counted": False}, StoresView)
    told = await ask_all(request, question, partial(list_stores, context, counted=False))
    return {
        store.name: (
            f"node {each.node_id} has this store in its settings, but this node has not: old "
            "versions in the scope may be there, too. Start the erasure at that node"
        )
        for each in told
        for store in (() if each.part is None else each.part.stores)
        if store.configured and store.name not in context.store_names
    }


@router.get("/erase/{job_id}", summary="An erasure: its progress or its report")
async def describe_erasure(
    context: Context,
    job_id: Annotated[str, Path(max_length=1_000, description="The job's id, a Kafka Uuid.")],
) -> ErasureView:
    """The last erasure is remembered until the node stops; requested again, it continues."""
    return ErasureView.of_job(context.erasures.erasure(parse_uuid(job_id, "job_id")))


@router.get("/{job_id}", summary="A job: its progress or its end")
async def describe_job(
    context: Context,
    job_id: Annotated[str, Path(max_length=1_000, description="The job's id, a Kafka Uuid.")],
) -> CollectionView:
    """The last collection is remembered until the node stops."""
    return CollectionView.of_job(context.collector.collection(parse_uuid(job_id, "job_id")))
