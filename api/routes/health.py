"""Health, readiness and metrics of the node, outside of /v1 and its headers."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response

from api.http.admission import Context, known_parameters, require
from api.http.listing import statuses_of
from api.http.tokens import Role
from api.metrics.metrics import METRICS_MEDIA_TYPE
from api.models.base import Wire
from kafka_formats.errors import RetryLater

router = APIRouter(dependencies=[Depends(known_parameters)], tags=["health"])


class Alive(Wire):
    """The process is alive."""

    status: Annotated[Literal["alive"], Field(examples=["alive"])]


class Ready(Wire):
    """The node accepts changes, and its answers are recent."""

    status: Annotated[Literal["ready"], Field(examples=["ready"])]


@router.get("/healthz", summary="Whether the process is alive; restart it if not")
async def healthz() -> Alive:
    """Needs no token."""
    return Alive(status="alive")


@router.get("/readyz", summary="Whether the node is caught up and has a leader")
async def readyz(context: Context) -> Ready:
    """Ready: the node knows a leader of the metadata quorum, and its view lags little. 503
    `retry_later` lists what is missing; reads are answered in either case. Needs no token.
    """
    missing = context.not_ready()
    if missing:
        raise RetryLater("not ready: " + "; ".join(missing))
    return Ready(status="ready")


@router.get(
    "/metrics",
    summary="Metrics in Prometheus' text format",
    dependencies=[Depends(require(Role.READ))],
    response_class=Response,
    responses={
        200: {
            "description": "Names and meanings: docs/API.md.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(context: Context) -> Response:
    """Gauges are read at each request."""
    state, manager = context.metrics.state, context.manager
    context.metrics.quorum.set_log(
        manager.describe(), manager.applied_offset, manager.snapshot_age_ms()
    )
    context.metrics.shadow.set(manager.shadow(), manager.shadow_lag(), context.now_ms())
    state.set_ready(not context.not_ready())
    state.set_problems(context.rlm.node_problems())
    state.set_nodes(manager.registered_nodes())
    state.set_totals(manager.totals())
    state.set_pauses(context.switches.text, context.settings.pause_text)
    state.set_partitions(
        await statuses_of(context.rlm.partitions(), context.rlm.status, context.sleep)
    )
    return Response(context.metrics.exposition(), media_type=METRICS_MEDIA_TYPE)
