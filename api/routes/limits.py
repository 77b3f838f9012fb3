"""Rate limits of the node asked, which can change while it runs."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api.http.admission import Context, require
from api.http.tokens import Role
from api.models.flow import LimitsRequest, LimitsView

router = APIRouter(prefix="/node", tags=["node"])


@router.get("/limits", summary="Rate limits of this node towards the stores")
async def describe_limits(context: Context) -> LimitsView:
    """The tighter of a topic's own limit and the node's applies."""
    return LimitsView.of_node(context.flow.limits, context.identity.node_id)


@router.put(
    "/limits",
    summary="Change the rate limits of this node",
    dependencies=[Depends(require(Role.OPERATE))],
)
async def change_limits(context: Context, body: LimitsRequest) -> LimitsView:
    """Needs the role operate. Replaces all limits at once, also for transfers under way; a restart
    brings back those of the settings.
    """
    context.flow.change(body.limits())
    return LimitsView.of_node(context.flow.limits, context.identity.node_id)
