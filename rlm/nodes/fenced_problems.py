"""Fenced nodes as problems, reported by each node of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlm.control.node_problem import NodeProblem, ProblemArea
from rlmm.rows.nodes import Liveness, RegisteredNode


def fenced_nodes(nodes: Sequence[RegisteredNode]) -> Iterator[NodeProblem]:
    """One problem for each node that the quorum's leader fenced, in the order of `nodes`."""
    for node in nodes:
        if node.liveness is Liveness.FENCED:
            where = f" ({node.facts.http})" if node.facts.http else ""
            yield NodeProblem(
                ProblemArea.NODES,
                str(node.node_id),
                f"node {node.node_id}{where} is fenced: it ended without saying so, or can't reach "
                "the quorum's leader. What its broker leads is not copied meanwhile, unless it "
                "still can. Start it; if it is gone for good, `strandline nodes remove "
                f"{node.node_id}`",
            )
