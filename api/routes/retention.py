"""Retention of a partition: plan it, let a pass exceed its brake, delete records."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.tokens import Principal, Role
from api.models.retention import (
    AcceptedPercent,
    DeleteRecordsRequest,
    DeleteRecordsView,
    RetentionPlanView,
    RetentionRequest,
)
from api.routes.path_parameters import FoundPartition
from rlm.control.audit import AuditAction
from rlm.retention.acceptance import AskedAcceptance

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}/retention", tags=["retention"])


@router.get("/plan", summary="Plan: segments that retention would delete now, and why")
async def retention_plan(context: Context, tip: FoundPartition) -> RetentionPlanView:
    """A dry run, by this node's clock. Changes nothing; the node beside the leader carries
    it out.
    """
    plan = await context.retention.plan(tip)
    return RetentionPlanView.of_plan(tip, plan, context.retention.accepted_text(tip))


@router.post("/plan", summary="Plan with a different policy")
async def retention_plan_by(
    context: Context, tip: FoundPartition, body: RetentionRequest
) -> RetentionPlanView:
    """A dry run of a policy before it is set. Changes nothing."""
    policy = body.policy(context.manager.topic_policy(tip.topic, tip.topic_id))
    plan = await context.retention.plan(tip, None, policy)
    return RetentionPlanView.of_plan(tip, plan, context.retention.accepted_text(tip))


@router.put(
    "/accepted-percent",
    summary="Let the next pass delete more than retention.max_percent, once",
)
async def accept_retention(
    context: Context,
    tip: FoundPartition,
    body: AcceptedPercent,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> RetentionPlanView:
    """Needs the role admin; carried out by the node with the claim. Answers with the plan, which
    the next pass may carry out. The permission ends with that pass, whatever it does, and applies
    under this policy and claim only. 409 with the reason: NOT_CLAIMED, HELD_BACK, NOT_NEEDED
    (nothing would be deleted), TOO_MUCH (more than `percent`), OTHER_PLAN (the log start would move
    beyond `up_to_offset`).
    """
    asked = AskedAcceptance(float(body.percent), body.up_to_offset, principal.name)
    plan = await context.retention.accept(tip, asked)
    return RetentionPlanView.of_plan(tip, plan, context.retention.accepted_text(tip))


@router.post("/delete-records", summary="Delete everything below an offset from the tier")
async def delete_records(
    context: Context,
    tip: FoundPartition,
    body: DeleteRecordsRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> DeleteRecordsView:
    """Needs the role admin; carried out by the node with the claim. Records below the offset are
    not readable any more once this is answered; retention deletes their bytes, as whole segments.
    """
    before = body.before_offset
    if body.dry_run:
        planned = await context.retention.delete_records(tip, before, apply=False)
    else:
        await context.manager.catch_up()  # the view has to be current to answer "no change"
        with audited(
            context, tip, AuditAction.RECORDS_DELETED, body.reason, principal,
            offsets=(-1, before - 1),
        ):  # fmt: skip
            planned = await context.retention.delete_records(tip, before, apply=True)
    return DeleteRecordsView.told(tip, planned, dry_run=body.dry_run)
