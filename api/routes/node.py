"""Kill switches of the queried node."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.http.admission import Context, require
from api.http.context import ApiContext
from api.http.listing import statuses_of
from api.http.tokens import Principal, Role
from api.models.node import PauseView, SwitchesView, SwitchRequest
from rlm.node_files.kill_switches import Switch

router = APIRouter(prefix="/node", tags=["node"])


@router.get("/switches", summary="Kill switches of this node: copying and deleting")
async def describe_switches(context: Context) -> SwitchesView:
    """The pauses set on this node. A topic's own are in its policy."""
    return await _view(context)


@router.put("/switches/{switch}", summary="Pause or resume copying or deleting on this node")
async def throw_switch(
    context: Context,
    switch: Switch,
    body: SwitchRequest,
    principal: Annotated[Principal, Depends(require(Role.OPERATE))],
) -> SwitchesView:
    """Needs the role operate. A pause is in force at once and after a restart; copies under way
    finish. It is safe to repeat, which keeps the first pause.
    """
    if body.paused:
        await context.switches.pause(switch, by=principal.name, why=body.why)
    else:
        await context.switches.resume(switch, by=principal.name, why=body.why)
    return await _view(context)


async def _view(context: ApiContext) -> SwitchesView:
    rlm = context.rlm
    statuses = await statuses_of(rlm.partitions(), rlm.status, context.sleep)
    return SwitchesView(
        node_id=context.identity.node_id,
        copying=_pause(context, Switch.COPYING),
        deleting=_pause(context, Switch.DELETING),
        copies_in_flight=sum(status.copying is not None for status in statuses),
    )


def _pause(context: ApiContext, switch: Switch) -> PauseView | None:
    pause = context.switches.pause_of(switch)
    return None if pause is None else PauseView.of(pause)
