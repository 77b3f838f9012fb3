"""Events for pages that stay open, and the caller's role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from api.http.admission import Context, require
from api.http.context import ApiContext
from api.http.streaming import StreamAnswer, open_stream
from api.http.tokens import Principal, Role
from api.models.live import CallerView, LiveEvent

router = APIRouter(tags=["cluster"])

EVENT_STREAM = "text/event-stream"
_EVENT = {
    "type": "object",
    "properties": {"event": {"const": "state"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}


@router.get("/caller", summary="The caller's name and role")
async def describe_caller(
    request: Request,
    principal: Annotated[Principal, Depends(require(Role.READ))],
) -> CallerView:
    """The caller is identified by its token, or without one by its address."""
    return CallerView.of_principal(principal, token="authorization" in request.headers)


@router.get(
    "/events",
    summary="The node and its metadata log, as they change",
    response_class=StreamAnswer,
    responses={
        200: {
            "description": "Server-sent events (HTML standard): `state` with a JSON object, at "
            "once and after each change; a comment if nothing changes for a while.",
            "content": {EVENT_STREAM: {"schema": _EVENT}},
        }
    },
)
async def events(request: Request, context: Context) -> StreamAnswer:
    """Each event has the whole state. The stream ends after a while, and when the node stops."""
    limits = context.limits
    return await open_stream(request.scope, _events(context), limits, media_type=EVENT_STREAM)


async def _events(context: ApiContext) -> AsyncIterator[bytes]:
    limits, live, monotonic = context.limits, context.live, context.monotonic
    with live.taken(limits.event_streams_max):
        end_s = monotonic() + limits.event_stream_s
        sent, sent_at_s = b"", monotonic()
        while True:
            event = live.event(lambda: _event(context), monotonic(), limits.event_pause_s)
            if event != sent:
                yield b"event: state\ndata: " + event + b"\n\n"
                sent, sent_at_s = event, monotonic()
            elif monotonic() - sent_at_s >= limits.event_beat_s:
                yield b": nothing new\n\n"
                sent_at_s = monotonic()
            if monotonic() >= end_s or await live.pause(limits.event_pause_s):
                return


def _event(context: ApiContext) -> bytes:
    manager = context.manager
    event = LiveEvent.of_node(
        manager.describe(),
        manager.applied_offset,
        manager.registered_nodes(),
        manager.totals(),
        len(context.rlm.node_problems()),
    )
    return event.model_dump_json().encode()
