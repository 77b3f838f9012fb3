"""Retention of a partition: what it would take, and leave to take more than the brake allows."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api.admission import Context, require
from api.models.retention import AcceptedPercent, RetentionPlanView, RetentionRequest
from api.routes.found import FoundPartition
from api.tokens import Role

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}/retention", tags=["retention"])


@router.get("/plan", summary="What retention would delete now, when the next, and why")
async def retention_plan(context: Context, tip: FoundPartition) -> RetentionPlanView:
    """A dry run, by this node's clock. Changes nothing; the node that leads carries it out."""
    return RetentionPlanView.of(tip, await context.retention.plan(tip))


@router.post("/plan", summary="What retention would delete now by another policy")
async def retention_plan_by(
    context: Context, tip: FoundPartition, body: RetentionRequest
) -> RetentionPlanView:
    """A dry run of a policy before it is set. Changes nothing."""
    policy = body.policy(context.manager.topic_policy(tip.topic, tip.topic_id))
    return RetentionPlanView.of(tip, await context.retention.plan(tip, None, policy))


@router.put(
    "/accepted-percent",
    summary="Let the next pass take more than retention.max_percent, once",
    dependencies=[Depends(require(Role.ADMIN))],
)
async def accept_retention(
    context: Context, tip: FoundPartition, body: AcceptedPercent
) -> RetentionPlanView:
    """Needs the role admin; asked of the node that leads, 409 elsewhere. Answers with the plan."""
    context.retention.accept(tip, float(body.percent))
    return RetentionPlanView.of(tip, await context.retention.plan(tip, float(body.percent)))
