"""Calls of the broker's plug-in, whose bodies and headers docs/BROKER_PROTOCOL.md has."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.http.admission import Context, require
from api.http.tokens import Principal, Role
from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.sessions import SessionRefused
from rlm.delegated.wire import MEDIA_TYPE, PROTOCOL

router = APIRouter(prefix="/broker", tags=["broker"])

READ_DEADLINE_S = 0.8
ANNOUNCE_DEADLINE_S = 9.0
WRITE_DEADLINE_S = 14.5
DELETE_DEADLINE_S = 5.0
SESSION_CHARACTERS_MAX = 60

_BODY: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}


class Call(StrEnum):
    """Calls that are answered with one body."""

    ANNOUNCE = "announce"
    READY = "ready"
    LOOK_UP = "lookup"
    HIGHEST = "highest"
    LIST = "list"
    ADD = "add"
    UPDATE = "update"
    DELETE_PARTITION = "delete-partition"
    DELETE = "delete"


WITHOUT_SESSION = frozenset({Call.ANNOUNCE, Call.DELETE})
DEADLINES_S = {
    Call.ANNOUNCE: ANNOUNCE_DEADLINE_S,
    Call.ADD: WRITE_DEADLINE_S,
    Call.UPDATE: WRITE_DEADLINE_S,
    Call.DELETE_PARTITION: WRITE_DEADLINE_S,
    Call.DELETE: DELETE_DEADLINE_S,
}
"""Below the plug-in's own; all others are reads."""


async def broker_calls(
    request: Request,
    context: Context,
    _: Annotated[Principal, Depends(require(Role.OPERATE))],
    protocol: Annotated[
        str, Header(alias="Strandline-Broker-Protocol", max_length=10, description="1.")
    ] = "",
) -> BrokerCalls:
    """The answers to the plug-in, for a request that speaks its protocol."""
    if request.headers.get("content-type") != MEDIA_TYPE:
        raise HTTPException(415, f"the body of a broker's call is {MEDIA_TYPE}")
    if protocol != str(PROTOCOL):
        raise SessionRefused(
            f"this node speaks protocol {PROTOCOL} with brokers' plug-ins, not {protocol!r}: use "
            "a plug-in of the node's version",
            reason="PROTOCOL",
        )
    if context.broker is None:
        raise RetryLater("this node serves no broker")
    return context.broker


Calls = Annotated[BrokerCalls, Depends(broker_calls)]


@router.post(
    "/{call}",
    summary="A call of the broker's plug-in",
    response_class=Response,
    responses={200: {"description": "The call's answer.", "content": _BODY}},
    openapi_extra={"requestBody": {"required": True, "content": _BODY}},
)
async def broker_call(
    request: Request,
    calls: Calls,
    call: Call,
    session: Annotated[
        str,
        Header(
            alias="Strandline-Session",
            max_length=SESSION_CHARACTERS_MAX,
            description="Session and announcement, `UUID;SEQ`; not for `announce` and `delete`.",
        ),
    ] = "",
) -> Response:
    """Needs the role operate. Bodies are binary; errors are headers, too: Strandline-Kind, -Reason
    and -Detail.
    """
    body = await request.body()
    deadline_s = DEADLINES_S.get(call, READ_DEADLINE_S)
    try:
        async with asyncio.timeout(deadline_s):
            if call not in WITHOUT_SESSION:
                calls.plugin.call(*_session(session))
            answer = await _answer(calls, call, body)
    except TimeoutError:
        raise RetryLater(f"no answer to {call.value} within {deadline_s:g} s") from None
    return Response(answer, media_type=MEDIA_TYPE)


async def _answer(calls: BrokerCalls, call: Call, body: bytes) -> bytes:
    match call:
        case Call.ANNOUNCE:
            return calls.announce(body)
        case Call.READY:
            return calls.ready(body)
        case Call.LOOK_UP:
            return calls.look_up(body)
        case Call.HIGHEST:
            return calls.highest(body)
        case Call.LIST:
            return await calls.list_segments(body)
        case Call.ADD:
            return await calls.add(body)
        case Call.UPDATE:
            return await calls.update(body)
        case Call.DELETE_PARTITION:
            return await calls.delete_partition(body)
        case Call.DELETE:
            return await calls.delete_objects(body)


def _session(text: str) -> tuple[Uuid, int]:
    id_, _, seq = text.partition(";")
    if not (seq.isascii() and seq.isdecimal() and len(seq) < 19):
        raise InvalidRequest("is UUID;SEQ", field="Strandline-Session")
    return Uuid.parse(id_), int(seq)
