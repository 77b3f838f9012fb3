"""Checks before a route runs: token and role, unknown parameters, the requested metadata offset."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.types import Scope

from api.http.context import ApiContext
from api.http.forwarded_requests import Vouched
from api.http.gate import CONTEXT_SCOPE_KEY, METADATA_OFFSET_SCOPE_KEY
from api.http.route_table import route_of
from api.http.tokens import ANONYMOUS, BROKER, TOKEN_BYTES_MAX, Principal, Role
from api.http.validation import INT64_MAX, Whole
from kafka_formats.errors import InvalidRequest, Refused, RetryLater

MIN_OFFSET_HEADER = "Strandline-Min-Metadata-Offset"
_SEND = (
    "send a token (Authorization: Bearer TOKEN; commands take --token-file FILE, or its path in "
    "STRANDLINE_TOKEN_FILE)"
)

PRINCIPAL_SCOPE_KEY = "strandline.principal"
"""Key in the scope of the admitted caller, a `Principal`."""
VOUCHED_SCOPE_KEY = "strandline.vouched"
"""Key in the scope of a forwarded request: the caller as the forwarding node vouches for it, a
`Vouched`. No client can set it: headers do not become keys of the scope.
"""

_ONLY_ASK = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"none", "same-origin"})
_FORWARDED = frozenset(
    {
        b"cf-connecting-ip",
        b"forwarded",
        b"true-client-ip",
        b"via",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-envoy-external-address",
        b"x-original-forwarded-for",
        b"x-original-host",
        b"x-real-ip",
    }
)
_FORWARDED_PREFIX = b"x-forwarded-"
"""Headers that proxies add for the clients they forward, and the prefix of further ones."""

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="A token of the node's token file. Roles: read, broker, operate, admin.",
)
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
MinOffset = Annotated[
    # -1 is the offset of a node without records.
    Annotated[int, Field(ge=-1, le=INT64_MAX), Whole] | None,
    Header(
        alias=MIN_OFFSET_HEADER,
        description="Answer only once this metadata offset is applied here.",
    ),
]


def context_in(request: Request) -> ApiContext:
    """The application's context, for dependencies; a plain call, which is faster than a
    dependency.
    """
    context = request.scope[CONTEXT_SCOPE_KEY]
    assert isinstance(context, ApiContext)
    return context


async def context_of(request: Request) -> ApiContext:
    """The application's context, as a dependency."""
    return context_in(request)


Context = Annotated[ApiContext, Depends(context_of)]


def require(role: Role) -> Callable[..., Awaitable[Principal]]:
    """A dependency that requires `role`: 401 without a valid token, 403 below that role."""

    async def admit(request: Request, credentials: Credentials) -> Principal:
        principal = _principal(request, context_in(request), credentials)
        request.scope[PRINCIPAL_SCOPE_KEY] = principal
        if principal.role < role:
            has = BROKER if principal.is_broker else principal.role.name.lower()
            needs = role.name.lower()
            if VOUCHED_SCOPE_KEY not in request.scope and "authorization" not in request.headers:
                raise Refused(
                    f"without a token the role is {has}, but this requires {needs}: {_SEND}"
                )
            raise Refused(
                f"{principal.name} has the role {has}, but this requires {needs}: use a token of "
                f"role {needs}"
            )
        return principal

    return admit


def require_broker() -> Callable[..., Awaitable[Principal]]:
    """A dependency for calls of the broker's plug-in: as `require`, for the role broker, which
    operate and admin include.
    """
    admit = require(Role.READ)

    async def admit_broker(request: Request, credentials: Credentials) -> Principal:
        principal = await admit(request, credentials)
        if not principal.speaks_for_broker:
            if "authorization" not in request.headers:
                raise Refused(
                    f"without a token the role is read, but this requires broker: {_SEND}"
                )
            raise Refused(
                f"{principal.name} has the role read, but this requires broker: use a token of "
                "role broker"
            )
        return principal

    return admit_broker


def _principal(
    request: Request, context: ApiContext, credentials: HTTPAuthorizationCredentials | None
) -> Principal:
    vouched: Vouched | None = request.scope.get(VOUCHED_SCOPE_KEY)
    if vouched is not None:
        return vouched.principal
    if "authorization" in request.headers:
        if credentials is None or len(credentials.credentials) > TOKEN_BYTES_MAX:
            raise _unauthenticated("Authorization is not of the form: Bearer TOKEN")
        found = context.tokens.principal(credentials.credentials)
        if found is None:
            raise _unauthenticated("this token is not in the node's token file")
        return found
    if context.anonymous_role is None or not is_local(request.scope):
        raise _unauthenticated(_SEND)
    if request.method not in _ONLY_ASK and is_from_a_page(request.headers):
        raise Refused(
            "this request comes from a web page (Origin, Sec-Fetch-Site), and pages without a "
            f"token may only read: {_SEND}, or use a program other than a browser"
        )
    return Principal(ANONYMOUS, context.anonymous_role)


def _unauthenticated(detail: str) -> HTTPException:
    return HTTPException(401, detail, headers={"WWW-Authenticate": 'Bearer realm="strandline"'})


def is_local(scope: Scope) -> bool:
    """True for a request that a program on this machine addressed to this machine.

    The client address alone is not enough: a proxy on this machine forwards requests of other
    machines, and a web page can make a browser on this machine connect here under a foreign name
    (DNS rebinding).
    """
    client: tuple[str, int] | None = scope.get("client")
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    if client is None or any(map(_is_a_proxys, headers)):
        return False
    host = headers.get(b"host", b"").decode("latin-1")
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return _is_loopback(client[0]) and (
        name.lower() == "localhost" or _is_loopback(name.strip("[]"))
    )


def _is_a_proxys(header: bytes) -> bool:
    return header in _FORWARDED or header.startswith(_FORWARDED_PREFIX)


def is_from_a_page(headers: Mapping[str, str]) -> bool:
    """True for a request that a web page made a browser send, the node's own `/ui` included.

    Browsers add these headers themselves (Fetch standard: `Origin` to all but GET and HEAD). They
    send a POST whose body looks like a form or plain text without asking the node first.
    """
    return "origin" in headers or headers.get("sec-fetch-site", "none") not in _OWN_SITES


@lru_cache(maxsize=64)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def known_parameters(request: Request) -> None:
    """Refuse unknown and repeated query parameters, by name, as a dependency."""
    check_parameters(request)


def check_parameters(request: Request) -> None:
    """Refuse unknown and repeated query parameters, by name."""
    allowed = route_of(request.scope).query_parameters.get(request.method, frozenset())
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) == len(names) and allowed.issuperset(names):
        return  # the usual case: the checks below are slower
    for name, count in Counter(names).items():
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise InvalidRequest(
                f"this path has no such query parameter: leave it out; the path has: {known}",
                field=name[:100],
            )
        if count > 1:
            raise InvalidRequest("the parameter is given more than once: give it once", field=name)


async def wished_offset(request: Request, min_offset: MinOffset = None) -> None:
    """Check parameters, wait for the requested metadata offset, and note the offset of the answer.

    The offset is noted before the route reads, so the answer reflects at least all records up to
    it.
    """
    check_parameters(request)
    context = context_in(request)
    if min_offset is not None:
        deadline_s = context.limits.min_offset_wait_s
        try:
            async with asyncio.timeout(deadline_s):
                await context.manager.wait_for_offset(min_offset, deadline_s=deadline_s)
        except TimeoutError:
            raise RetryLater(
                f"metadata offset {min_offset} is not applied here within {deadline_s:g} s; this "
                f"node has applied {context.manager.applied_offset}. Ask again, or ask a "
                "different node"
            ) from None
    request.scope[METADATA_OFFSET_SCOPE_KEY] = context.manager.applied_offset
