"""The event that informs a page of changes, and the caller of a request."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.http.tokens import Principal
from api.models.base import NullBelowZero, Offset, OffsetOrNull, Wire
from api.models.cluster import TierTotals
from rlmm.metadata_log import LogDescription, ReplicaState
from rlmm.partition_state import Totals
from rlmm.rows.nodes import Liveness, RegisteredNode


class CallerView(Wire):
    """The caller, as the queried node identified it."""

    name: Annotated[str, Field(description="The name of its token.", examples=["ci"])]
    role: Annotated[Literal["read", "operate", "admin"], Field(examples=["read"])]
    token: Annotated[
        bool, Field(description="False: the caller sent no token; a web page can only read then.")
    ]

    @classmethod
    def of_principal(cls, principal: Principal, *, token: bool) -> CallerView:
        """The view of a caller as it was admitted."""
        return cls.of(principal, role=principal.role.name.lower(), token=token)


class ReplicaProgress(Wire):
    """A replica of the metadata log; on nodes other than the leader the offsets are null."""

    node_id: Annotated[int, Field(examples=[2])]
    voter: bool
    log_end_offset: OffsetOrNull
    lag: Annotated[
        int | None, Field(description="Offsets that the replica has not fetched yet.", examples=[0])
    ]

    @classmethod
    def of_replica(
        cls, replica: ReplicaState, leader_end_offset: int, *, voter: bool
    ) -> ReplicaProgress:
        """The view of a replica; its lag is counted from the leader's log end."""
        end = replica.log_end_offset
        return cls.of(
            replica, voter=voter, lag=None if end < 0 else max(leader_end_offset - end, 0)
        )


class NodeLiveness(Wire):
    """A registered node."""

    node_id: Annotated[int, Field(examples=[3])]
    liveness: Literal["live", "fenced", "stopped"]


class LiveEvent(Wire):
    """The queried node and its metadata log at one moment. The event is identical while nothing
    changes.
    """

    node_id: Annotated[int, Field(description="The queried node.", examples=[1])]
    state: Annotated[str, Field(description="Its state in the quorum.", examples=["leader"])]
    leader_id: Annotated[int | None, NullBelowZero]
    leader_epoch: Annotated[int, Field(examples=[12])]
    high_watermark: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    applied_offset: Annotated[int, Field(description="Metadata offset of this node's view.")]
    replicas: list[ReplicaProgress]
    nodes: list[NodeLiveness]
    totals: TierTotals
    problems: Annotated[int, Field(description="Number of problems of the queried node.")]

    @classmethod
    def of_node(
        cls,
        log: LogDescription,
        applied_offset: int,
        nodes: tuple[RegisteredNode, ...],
        totals: Totals,
        problems: int,
    ) -> LiveEvent:
        """An event with facts of `/v1/quorum`, `/v1/nodes` and `/v1/cluster`."""
        end = log.log_end_offset
        return cls.of(
            log,
            applied_offset=applied_offset,
            replicas=[ReplicaProgress.of_replica(each, end, voter=True) for each in log.voters]
            + [ReplicaProgress.of_replica(each, end, voter=False) for each in log.observers],
            nodes=[
                NodeLiveness(node_id=each.node_id, liveness=each.liveness.name.lower())  # type: ignore[arg-type]
                for each in nodes
                if each.liveness is not Liveness.REMOVED
            ],
            totals=TierTotals.of_totals(totals),
            problems=problems,
        )
