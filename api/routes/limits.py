"""How fast the node that is asked moves bytes: shown, and changed while it runs."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from api.http.admission import Context, require
from api.http.tokens import Role
from api.models.flow import LimitsRequest, LimitsView

router = APIRouter(prefix="/node", tags=["node"])


@router.get("/limits", summary="How fast this node may move bytes to and from the stores")
async def describe_limits(context: Context) -> LimitsView:
    """Of each topic the tighter one of its own limit and the node's holds."""
    return LimitsView.of_node(context.flow.limits, context.identity.node_id)


@router.put(
    "/limits",
    summary="Change how fast this node may move bytes",
    dependencies=[Depends(require(Role.OPERATE))],
)
async def change_limits(context: Context, body: LimitsRequest) -> LimitsView:
    """Needs the role operate. All limits are replaced, at once and for what moves already; a
    restart brings those of the settings back.
    """
    context.flow.change(body.limits())
    return LimitsView.of_node(context.flow.limits, context.identity.node_id)
