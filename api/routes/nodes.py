"""The nodes of the cluster: list, show, remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.tokens import Principal, Role
from api.http.validation import EpochNumber
from api.models.nodes import ClusterNodesView, ClusterNodeView
from kafka_formats.errors import Conflict, NotFound
from rlm.control.audit import AuditAction
from rlmm.records.control_records import NodeRemoved
from rlmm.rows.nodes import Liveness, RegisteredNode

router = APIRouter(prefix="/nodes", tags=["cluster"])

NodeIdInPath = Annotated[
    EpochNumber, Path(description="Node id, which is the broker's id.", examples=[7])
]


@router.get("", summary="The nodes of the cluster, and their liveness")
async def list_nodes(context: Context) -> ClusterNodesView:
    """Every node answers the same, from the metadata log."""
    manager = context.manager
    return ClusterNodesView.of_nodes(
        manager.registered_nodes(), manager.describe(), manager.applied_offset
    )


@router.get("/{node_id}", summary="One node of the cluster")
async def show_node(context: Context, node_id: NodeIdInPath) -> ClusterNodeView:
    """A node, also a removed one. 404: no process registered with this id."""
    node = _found(context, node_id)
    return ClusterNodeView.of_node(node, context.manager.describe())


@router.delete("/{node_id}", summary="Remove a node that is gone for good from the list")
async def remove_node(
    context: Context,
    node_id: NodeIdInPath,
    admin: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> ClusterNodeView:
    """Needs the role admin. The segments that it copied do not change, its claims are in force
    until a different leader's, and its next start registers it again. 409 IS_A_VOTER: remove it
    from the quorum first; CONFLICT: it is live.
    """
    node = _found(context, node_id)
    if any(each.node_id == node_id for each in context.manager.describe().voters):
        raise Conflict(
            f"node {node_id} is a voter, which counts for the quorum's majority: `strandline "
            f"quorum remove-voter {node_id}` first",
            reason="IS_A_VOTER",
        )
    if node.liveness is not Liveness.REMOVED:
        why = f"node {node_id}, directory {node.directory_id}, was removed from the list of nodes"
        with audited(context, None, AuditAction.NODE_REMOVED, why, admin):
            await context.manager.record_node(NodeRemoved(node_id, node.boot_offset))
    return ClusterNodeView.of_node(_found(context, node_id), context.manager.describe())


def _found(context: ApiContext, node_id: int) -> RegisteredNode:
    node = context.manager.registered_node(node_id)
    if node is None:
        raise NotFound(
            f"no node {node_id} ever registered: `strandline nodes list` shows all nodes"
        )
    return node
