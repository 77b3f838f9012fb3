"""Admits a request before its body is read.

FastAPI reads a JSON body, and parses it in the event loop, before it checks the caller: so any
client that reaches the port could fill the memory, or keep the loop from its quorum.
"""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.admission import bearer, require
from api.http.route_table import route_of
from api.http.tokens import Role

_WITHOUT_BODY = frozenset({"GET", "HEAD"})


class AdmittedBodies:
    """An ASGI layer before the routes, which require the roles above `read` themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self.inner = app
        self._admit = require(Role.READ)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its caller has a role. HTTPException and Refused as `require` raises
        them.
        """
        if scope["type"] == "http" and _takes_body(scope):
            request = Request(scope)
            await self._admit(request, await bearer(request))
        await self.inner(scope, receive, send)


def _takes_body(scope: Scope) -> bool:
    """True for a method of this path that may have a body; all such paths require a role."""
    method = scope["method"]
    return method not in _WITHOUT_BODY and method in route_of(scope).query_parameters
