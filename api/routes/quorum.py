"""The metadata quorum: describe it, change its voters, move its leadership.

Only the leader makes changes; any other node refuses and names the leader, and `forwarding.py`
forwards the request to it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.tokens import Principal, Role
from api.http.validation import EpochNumber
from api.models.quorum import (
    CanStopView,
    FeatureLevelRequest,
    QuorumView,
    TransferRequest,
    VoterRequest,
    parse_directory_id,
)
from kafka_formats.errors import Conflict
from rlm.control.audit import AuditAction

router = APIRouter(prefix="/quorum", tags=["quorum"])

Admin = Annotated[Principal, Depends(require(Role.ADMIN))]
NodeIdInPath = Annotated[
    EpochNumber, Path(description="Node id, which is the broker's id.", examples=[2])
]
DirectoryIdParameter = Annotated[
    str | None,
    Query(max_length=1_000, description="Directory id of the voter; default: any."),
]


def _view(context: ApiContext) -> QuorumView:
    manager = context.manager
    return QuorumView.of_log(
        manager.describe(), manager.applied_offset, manager.digest(), manager.feature_level()
    )


@router.get("", summary="The metadata log: leader, epoch, offsets, voters and their lag")
async def describe_quorum(
    context: Context,
    by_leader: Annotated[
        bool, Query(description="Return the leader's view; this node forwards the request.")
    ] = False,
) -> QuorumView:
    """Only the leader knows the lag of the other replicas. Nodes with the same applied offset have
    the same digest.
    """
    leader = context.manager.describe().leader_id
    if by_leader and leader != context.identity.node_id:
        raise Conflict(
            f"node {leader} leads, and only it knows the lag of the replicas: ask that node"
            if leader >= 0
            else "this node knows no leader of the quorum now: ask again in a moment",
            reason="NOT_LEADER",
            ask_node=leader if leader >= 0 else None,
        )
    return _view(context)


@router.post("/voters", summary="Make an observer a voter")
async def add_voter(context: Context, body: VoterRequest, admin: Admin) -> QuorumView:
    """Needs the role admin. Waits until the observer has caught up and the change is committed; one
    change at a time.
    """
    voter, deadline_s = body.voter(), context.limits.quorum_deadline_s
    why = f"voter {voter.node_id}, directory {voter.directory_id}, was added"
    with audited(context, None, AuditAction.QUORUM_CHANGED, why, admin):
        await context.quorum.add_voter(voter, deadline_s=deadline_s)
    return _view(context)


@router.delete("/voters/{node_id}", summary="Remove a voter")
async def remove_voter(
    context: Context,
    node_id: NodeIdInPath,
    admin: Admin,
    directory_id: DirectoryIdParameter = None,
) -> QuorumView:
    """Needs the role admin. A leader that is removed resigns. 404: it is not a voter. 409
    TOO_FEW_WOULD_REMAIN: too few of the remaining voters are caught up for a majority.
    """
    directory = None if directory_id is None else str(parse_directory_id(directory_id))
    why = f"voter {node_id}, directory {directory or 'any'}, was removed"
    with audited(context, None, AuditAction.QUORUM_CHANGED, why, admin):
        await context.quorum.remove_voter(
            node_id, directory, deadline_s=context.limits.quorum_deadline_s
        )
    return _view(context)


@router.post("/transfer", summary="Transfer the leadership to a different voter")
async def transfer_leadership(context: Context, body: TransferRequest, admin: Admin) -> QuorumView:
    """Needs the role admin. Answers once the new leader leads, after a short election. 409
    NOT_TRANSFERRED: a third voter won the election and leads now.
    """
    to = "a different voter" if body.node_id is None else f"node {body.node_id}"
    with audited(
        context, None, AuditAction.QUORUM_CHANGED, f"leadership was handed to {to}", admin
    ):
        await context.quorum.transfer(body.node_id, deadline_s=context.limits.quorum_deadline_s)
    return _view(context)


@router.post("/feature-level", summary="Finalise a feature level of the metadata")
async def finalise_feature_level(
    context: Context, body: FeatureLevelRequest, admin: Admin
) -> QuorumView:
    """Needs the role admin. Every node has to run a release that supports the level: each voter is
    asked. This can't be undone, and a node that does not support the level stops.
    """
    finalised = context.manager.feature_level()
    await context.quorum.check_feature_level(
        body.feature_level,
        finalised,
        observers_upgraded=body.observers_upgraded,
        deadline_s=context.limits.quorum_deadline_s / 2,
    )
    if body.feature_level != finalised:
        why = f"feature level {body.feature_level} was finalised after {finalised}"
        with audited(context, None, AuditAction.QUORUM_CHANGED, why, admin):
            await context.manager.finalise_feature_level(body.feature_level)
    return _view(context)


@router.get("/can-stop/{node_id}", summary="Whether the quorum goes on without this node")
async def can_stop(context: Context, node_id: NodeIdInPath) -> CanStopView:
    """Allowed if the other voters that are caught up are a majority."""
    return CanStopView.of(context.quorum.can_stop(node_id), node_id=node_id)


@router.post("/accept-cut", summary="Accept the loss of records that only this node had")
async def accept_cut(context: Context, admin: Admin) -> QuorumView:
    """Needs the role admin. For a node whose lost records exist nowhere any more (its tail was cut,
    or its disk replaced): it votes and becomes a candidate again, and records that only it had are
    lost.
    """
    why = f"the loss of records that only node {context.identity.node_id} had was accepted"
    with audited(context, None, AuditAction.QUORUM_CHANGED, why, admin):
        await context.quorum.accept_cut(deadline_s=context.limits.quorum_deadline_s)
    return _view(context)
