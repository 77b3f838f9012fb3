"""The application: routes, the gate in front of them, the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from api.http.admission import require, wished_offset
from api.http.admitted_bodies import AdmittedBodies
from api.http.context import ApiContext
from api.http.forwarding import Forwarding
from api.http.gate import Gate
from api.http.resource_router import ResourceRouter
from api.http.route_table import RouteTable, route_of
from api.http.tokens import Role
from api.openapi import build_openapi
from api.quick_broker_calls import QuickBrokerCalls
from api.quick_look_up import QuickLookUp
from api.routes import (
    audit,
    broker,
    claims,
    cluster,
    cluster_settings,
    cluster_views,
    contents,
    coverage,
    gaps,
    health,
    jobs,
    known_segments,
    limits,
    live,
    log,
    migration,
    node,
    node_views,
    nodes,
    page,
    partitions,
    quorum,
    retention,
    segments,
    stores,
    strip,
    tiered_data,
    tiering_effects,
    topics,
    trash,
)


class StrandlineApi(FastAPI):
    """FastAPI with Strandline's OpenAPI document, which is built at the first request for it."""

    openapi_bytes: bytes | None = None
    """The encoded document: encoding takes 15 ms, and everybody may ask for it."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = build_openapi(self)
        return self.openapi_schema


_V1 = "/v1"


def create_app(context: ApiContext) -> FastAPI:
    """The application with every route of the node."""
    app = StrandlineApi(
        title="Strandline",
        version=context.identity.version,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            HTTPException: _pass_on,
            RequestValidationError: _pass_on,
        },
    )
    app.include_router(_v1(), prefix=_V1)  # a nested router would build each route twice
    app.include_router(health.router)
    app.include_router(page.router)
    app.add_api_route(
        "/v1/openapi.json",
        _openapi_route(app),
        response_class=JSONResponse,
        summary="This document",
        tags=["cluster"],
    )
    app.add_middleware(Forwarding)
    app.add_middleware(AdmittedBodies)
    app.add_middleware(QuickBrokerCalls)
    app.add_middleware(QuickLookUp)
    app.add_middleware(Gate, context=context, routes=RouteTable(app.routes))
    return app


def _v1() -> APIRouter:
    router = APIRouter(
        dependencies=[
            Depends(require(Role.READ)),
            Depends(wished_offset),
        ],
    )
    # Routes are tried in this order: those that brokers and readers call all the time come first.
    asked_rarely = (
        claims,
        gaps,
        tiered_data,
        cluster,
        cluster_settings,
        tiering_effects,
        quorum,
        audit,
        jobs,
        retention,
        trash,
        node,
        node_views,
        cluster_views,
        nodes,
        limits,
        live,
        log,
        migration,
        stores,
        strip,
        known_segments,
    )
    for resource in (segments, contents, broker, partitions, topics, coverage, *asked_rarely):
        router.include_router(ResourceRouter(resource.router.routes, _V1))
    return router


def _openapi_route(app: StrandlineApi) -> Callable[[], Awaitable[Response]]:
    async def openapi() -> Response:
        """Needs no token."""
        if app.openapi_bytes is None:
            # In a thread: building it would block the event loop for too long.
            app.openapi_bytes = await asyncio.to_thread(_document_of, app)
        return Response(app.openapi_bytes, media_type=JSONResponse.media_type)

    return openapi


def _document_of(app: FastAPI) -> bytes:
    return bytes(JSONResponse(app.openapi()).body)


async def _pass_on(request: Request, error: Exception) -> Response:
    """Pass every error on to the gate and its one table of errors. A 405 first gets all allowed
    methods, and a 404 of the router, which no route raises, names the list of paths.
    """
    if isinstance(error, HTTPException) and error.status_code == 405:
        allow = route_of(request.scope).allow
        raise HTTPException(
            405,
            f"this path does not support {request.method}: use one of {allow}",
            headers={"Allow": allow},
        ) from None
    if isinstance(error, HTTPException) and error.status_code == 404:
        raise HTTPException(404, _no_route(request.url.path)) from None
    raise error


def _no_route(path: str) -> str:
    if path.startswith("/v1/topics/"):
        return (
            "no such path: a topic name has only ASCII letters and digits, '.', '_' and '-', "
            "and no slash, not even an encoded one; GET /v1/openapi.json lists all paths"
        )
    return "no such path: GET /v1/openapi.json lists all paths"
