"""The nodes of the cluster, as the metadata log describes them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from api.models.base import IdText, MetadataOffset, Wire
from rlmm.metadata_log import LogDescription
from rlmm.rows.nodes import Liveness, RegisteredNode


class ReadListenerView(Wire):
    """The address of the read listener that clients are given."""

    host: Annotated[str, Field(examples=["strand-3"])]
    port: int
    zone: Annotated[str, Field(description="Empty: none.")]


class ClusterNodeView(Wire):
    """One node. Facts that its release does not register, or that it lacks, are null."""

    node_id: Annotated[int, Field(examples=[3])]
    directory_id: IdText
    boot_counter: Annotated[int, Field(description="Increases with each start of this directory.")]
    node_epoch: Annotated[
        int, Field(description="Metadata offset of its registration at its last start.")
    ]
    registered_ms: Annotated[
        int, Field(description="Time of that registration, by the quorum leader's clock.")
    ]
    liveness: Annotated[
        Literal["live", "fenced", "stopped", "removed"],
        Field(
            description="`fenced`: the quorum's leader has received nothing from it for too long; "
            "`stopped`: it announced its stop. Its claims are in force in any case."
        ),
    ]
    liveness_since_ms: int
    contested: Annotated[
        bool, Field(description="Two processes use this node id, and neither may write.")
    ]
    quorum_role: Annotated[
        Literal["leader", "voter", "observer"],
        Field(
            description="As the queried node sees it: the leader that it knows, and voters by "
            "its log."
        ),
    ]
    release: str | None
    feature_levels: Annotated[
        str | None,
        Field(
            description="Feature levels of the metadata that the node supports.",
            examples=["1 to 1"],
        ),
    ]
    http: Annotated[
        str | None, Field(description="URL of its HTTP interface.", examples=["https://n3:9480"])
    ]
    quorum: Annotated[
        str | None, Field(description="Address of its quorum listener.", examples=["n3:9481"])
    ]
    read: ReadListenerView | None
    log_dirs: Annotated[int | None, Field(description="Number of its log directories.")]

    @classmethod
    def of_node(cls, node: RegisteredNode, log: LogDescription) -> Self:
        """The view of a node; its role is from the log's description."""
        facts, program = node.facts, node.facts.program
        since_ms = node.timestamp_ms if node.liveness_ms is None else node.liveness_ms
        return cls.of(
            node,
            node_epoch=node.boot_offset,
            registered_ms=node.timestamp_ms,
            liveness=node.liveness.name.lower(),
            liveness_since_ms=since_ms,
            quorum_role=_role(node.node_id, log),
            release=None if program is None else program.release,
            feature_levels=(
                None if program is None else f"{program.lowest_level} to {program.highest_level}"
            ),
            http=facts.http,
            quorum=facts.quorum,
            read=None if facts.read is None else ReadListenerView.of(facts.read),
            log_dirs=facts.log_dirs,
        )


class ClusterNodesView(Wire):
    """All nodes that ever registered, except the removed ones, by id."""

    nodes: list[ClusterNodeView]
    metadata_offset: MetadataOffset

    @classmethod
    def of_nodes(
        cls, nodes: tuple[RegisteredNode, ...], log: LogDescription, applied_offset: int
    ) -> Self:
        """The list of nodes, without those that an admin removed."""
        shown = [each for each in nodes if each.liveness is not Liveness.REMOVED]
        return cls(
            nodes=[ClusterNodeView.of_node(each, log) for each in shown],
            metadata_offset=applied_offset,
        )


def _role(node_id: int, log: LogDescription) -> str:
    if node_id == log.leader_id:
        return "leader"
    return "voter" if any(each.node_id == node_id for each in log.voters) else "observer"
