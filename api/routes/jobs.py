"""Jobs: what takes longer than an answer may."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from api.admission import Context, require
from api.models.jobs import CollectionView, CollectRequest
from api.tokens import Principal, Role
from api.validation import parse_uuid

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.post("/collect", summary="Look for garbage in all stores, or remove it")
async def collect(
    context: Context,
    body: CollectRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> CollectionView:
    """Role admin. One pass runs at a time (409 RUNNING); ask for it by its id until it ended. Each
    node can do it, and one is enough.
    """
    return CollectionView.of(context.collector.start(body.request(), principal.name))


@router.get("/{job_id}", summary="A job: how far it is, how it ended")
async def describe_job(
    context: Context,
    job_id: Annotated[str, Path(max_length=1_000, description="The job's id, a Kafka Uuid.")],
) -> CollectionView:
    """The last one is remembered until the node stops."""
    return CollectionView.of(context.collector.collection(parse_uuid(job_id, "job_id")))
