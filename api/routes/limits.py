"""Rate limits of the queried node, which can change while it runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.tokens import Principal, Role
from api.models.flow import LimitsRequest, LimitsView
from kafka_formats.errors import Conflict
from rlm.cluster_settings.own_limits import own_limits
from rlm.control.audit import AuditAction

router = APIRouter(prefix="/node", tags=["node"])


@router.get("/limits", summary="Rate limits of this node's traffic to and from the stores")
async def describe_limits(context: Context) -> LimitsView:
    """The lower of a topic's own limit and the node's applies."""
    return _view(context)


@router.put(
    "/limits",
    summary="Change the rate limits of this node",
)
async def change_limits(
    context: Context,
    body: LimitsRequest,
    operator: Annotated[Principal, Depends(require(Role.OPERATE))],
) -> LimitsView:
    """Needs the role operate. Replaces all limits at once, also for transfers under way; a restart
    restores those of the settings. 409: the limits in force are not those of `replaces_revision`,
    or a setting of the cluster overrides one that would change.
    """
    if body.replaces_revision not in (None, context.flow.revision):
        raise Conflict(
            f"the limits were changed meanwhile: their revision is {context.flow.revision}, not "
            f"{body.replaces_revision}. Read them again, then decide"
        )
    flow, settings = context.flow, context.settings
    limits = own_limits(body.limits(), flow.own, flow.limits, settings.resolver, settings.node_id)
    rates = f"copies {limits.node.copy_bytes_per_s}, reads {limits.node.read_bytes_per_s}"
    why = f"bytes per second: {rates}; topics with their own: {len(limits.topics)}"
    with audited(context, None, AuditAction.LIMITS_CHANGED, why, operator):
        flow.change(limits)
    return _view(context)


def _view(context: ApiContext) -> LimitsView:
    flow = context.flow
    return LimitsView.of_node(flow.limits, flow.revision, context.identity.node_id)
