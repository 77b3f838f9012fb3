"""Log levels of the queried node, which can change while it runs."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Depends

from api.http.admission import Context, require
from api.http.tokens import Principal, Role
from api.models.log import LogLevelRequest, LogView
from rlm.control.log_levels import LogArea

router = APIRouter(prefix="/node", tags=["node"])
_log = logging.getLogger("strandline.api")


@router.get("/log", summary="Log levels of this node, by area")
async def describe_log(context: Context) -> LogView:
    """The log levels of the node; its workers use the same."""
    return LogView.of_node(context.log, context.identity.node_id)


@router.put("/log/{area}", summary="Change the log level of an area on this node")
async def change_log_level(
    context: Context,
    area: LogArea,
    body: LogLevelRequest,
    principal: Annotated[Principal, Depends(require(Role.OPERATE))],
) -> LogView:
    """Needs the role operate. In force at once, in the workers too; a restart restores the levels
    of the settings. No level logs secrets.
    """
    context.log.levels.change(area, body.level)
    _log.warning("%s set the log of %s to %s", principal.name, area, body.level)
    return LogView.of_node(context.log, context.identity.node_id)
