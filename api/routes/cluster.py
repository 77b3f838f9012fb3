"""The cluster."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.admission import Context
from api.models.cluster import ClusterView

router = APIRouter(tags=["cluster"])


@router.get("/cluster", summary="The queried node, its Kafka cluster, and the totals of the tier")
async def describe_cluster(context: Context) -> ClusterView:
    """One Strandline cluster serves one Kafka cluster; the node id is the broker id."""
    manager = context.manager
    return ClusterView.of_node(
        context.identity,
        manager.describe(),
        manager.totals(),
        context.rlm.node_problems(),
        context.rlm.problems(),
    )
