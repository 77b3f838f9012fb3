"""The plug-in's most frequent calls, answered before FastAPI.

A consumer's fetch costs a look-up and a read of bytes here; without fetches each broker asks for
lists and readiness a few times a second. FastAPI's own work is more than half of such a request.
The route's functions are called in FastAPI's order; a request with an invalid header goes to
FastAPI's route before any of them is called, so that only one place refuses requests.
`tests/api/test_quick_broker_calls.py` compares the answers of both.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.admission import (
    MIN_OFFSET_HEADER,
    bearer,
    context_in,
    require,
    require_broker,
    wished_offset,
)
from api.http.gate import BROKER_PATHS
from api.http.tokens import Role
from api.routes.broker import (
    APPLIED,
    APPLIED_CHARACTERS_MAX,
    HEADER_CHARACTERS_MAX,
    LIST_CHANGES,
    PROTOCOL_HEADER,
    SESSION,
    SESSION_CHARACTERS_MAX,
    Call,
    broker_call,
    broker_calls,
    broker_fetch,
)

_FETCH = f"{BROKER_PATHS}fetch"
_CALLS = {f"{BROKER_PATHS}{each}": each for each in (Call.LOOK_UP, Call.LIST, Call.READY)}


class QuickBrokerCalls:
    """An ASGI layer before `app`, which answers all other requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.general = app
        self._read, self._broker = require(Role.READ), require_broker()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let `app` answer."""
        if scope["type"] == "http" and scope["method"] == "POST":
            path = scope["path"]
            if path in _CALLS or path == _FETCH:
                request = Request(scope, receive, send)
                if _are_valid(request.headers):
                    answer = await self._answer(request, _CALLS.get(path))
                    await answer(scope, receive, send)
                    return
        await self.general(scope, receive, send)

    async def _answer(self, request: Request, call: Call | None) -> Response:
        """The answer to a call; `call` None: to a fetch."""
        headers, context = request.headers, context_in(request)
        credentials = await bearer(request)
        await self._read(request, credentials)
        await wished_offset(request)
        principal = await self._broker(request, credentials)
        protocol = headers.get(PROTOCOL_HEADER, "")
        calls = await broker_calls(request, context, principal, protocol)
        if call is None:
            return await broker_fetch(request, context, calls)
        session, changes = headers.get(SESSION, ""), headers.get(LIST_CHANGES, "")
        applied = headers.get(APPLIED, "")
        return await broker_call(request, calls, call, session, changes, applied)


def _are_valid(headers: Mapping[str, str]) -> bool:
    return (
        MIN_OFFSET_HEADER not in headers
        and len(headers.get(SESSION, "")) <= SESSION_CHARACTERS_MAX
        and len(headers.get(PROTOCOL_HEADER, "")) <= HEADER_CHARACTERS_MAX
        and len(headers.get(LIST_CHANGES, "")) <= HEADER_CHARACTERS_MAX
        and len(headers.get(APPLIED, "")) <= APPLIED_CHARACTERS_MAX
    )
