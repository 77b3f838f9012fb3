"""Admits a request before its body is read.

FastAPI reads a JSON body, and parses it in the event loop, before it asks who the caller is: so
anybody who reaches the port could fill the memory, or keep the loop from its quorum.
"""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.admission import bearer, require
from api.http.route_table import route_of
from api.http.tokens import Role

_WITHOUT_BODY = frozenset({"GET", "HEAD"})


class AdmittedBodies:
    """An ASGI layer in front of the routes, which ask for the roles above `read` themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self.inner = app
        self._admit = require(Role.READ)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a caller with a role pass. HTTPException, Refused as of `require`."""
        if scope["type"] == "http" and _takes_body(scope):
            request = Request(scope)
            await self._admit(request, await bearer(request))
        await self.inner(scope, receive, send)


def _takes_body(scope: Scope) -> bool:
    """True for a method of this path that may have a body; all such paths need a role."""
    method = scope["method"]
    return method not in _WITHOUT_BODY and method in route_of(scope).query_parameters
