"""The move from Kafka's own metadata topic: its phase, and what the brokers say to it."""

from __future__ import annotations

from fastapi import APIRouter, Request

from api.http.admission import Context
from api.http.asking_all import Question, ask_all
from api.models.migration import MigrationOfNode, NodeMigrationView, WholeMigrationView
from api.models.whole import NodePartView

router = APIRouter(tags=["cluster"])


@router.get("/migration", summary="The move from Kafka's metadata topic, as this node sees it")
async def node_migration(context: Context) -> NodeMigrationView:
    """Its own broker's bridge alone; `/v1/cluster/migration` has those of all nodes."""
    last = None if context.broker is None else context.broker.phases.last
    return NodeMigrationView.of_migration(context.manager.migration(), last, context.monotonic())


@router.get("/cluster/migration", summary="The move as all nodes see it, with their brokers")
async def whole_migration(request: Request, context: Context) -> WholeMigrationView:
    """`nodes` names those that did not answer."""
    told = await ask_all(
        request,
        Question("/v1/migration", lambda _: {}, NodeMigrationView),
        lambda: node_migration(context),
    )
    return WholeMigrationView(
        nodes=NodePartView.all_of(told),
        seen=[
            MigrationOfNode(node=each.node_id, **dict(each.part))
            for each in told
            if each.part is not None
        ],
    )
