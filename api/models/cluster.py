"""The cluster: the node's identity, totals of the tier, and problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from api.http.api_limits import PROBLEMS_SHOWN_MAX
from api.http.context import NodeIdentity
from api.models.base import NullBelowZero, Wire
from rlm.control.node_problem import NodeProblem
from rlm.control.reasons import AREAS
from rlm.local_log.log_dir import LogDirProblem
from rlmm.metadata_log import LogDescription
from rlmm.partition_state import Totals


class TierTotals(Wire):
    """Totals of the tier, over all topics."""

    partitions: int
    copy_segment_started: Annotated[int, Field(description="Segments in this state.")]
    copy_segment_finished: Annotated[int, Field(examples=[120])]
    delete_segment_started: int
    size_bytes: Annotated[int, Field(description="Bytes of the `.log` files of finished segments.")]

    @classmethod
    def of_totals(cls, totals: Totals) -> TierTotals:
        """The totals in the metadata."""
        return cls.of(
            totals,
            copy_segment_started=totals.copy_started,
            copy_segment_finished=totals.copy_finished,
            delete_segment_started=totals.delete_started,
        )


class LogDirProblemView(Wire):
    """A directory or file that this node cannot tier, and why."""

    path: str
    topic: Annotated[str | None, Field(description="Null: the problem is with the directory.")]
    partition: int | None
    kind: str
    text: str

    @classmethod
    def of_problem(cls, problem: LogDirProblem) -> LogDirProblemView:
        """The view of a problem. A path may be any bytes; those that are not UTF-8 are escaped."""
        return cls(
            path=_printable(str(problem.path)),
            topic=None if problem.topic is None else _printable(problem.topic),
            partition=problem.partition,
            kind=problem.kind.value,
            text=_printable(problem.message),
        )


class NodeProblemView(Wire):
    """A problem of the whole node, and what to do."""

    about: Annotated[
        str,
        Field(
            description="The area that does not work: "
            + "; ".join(f"`{area.value}`: {reason.stops}" for area, reason in AREAS.items()),
            examples=["store"],
        ),
    ]
    name: Annotated[
        str | None, Field(description="Name of the store, partition, switch or reason; else null.")
    ]
    text: str

    @classmethod
    def of_problem(cls, problem: NodeProblem) -> NodeProblemView:
        """The view of a problem. Bytes of its text that are not UTF-8 are escaped."""
        return cls(about=problem.area.value, name=problem.name, text=_printable(problem.text))


class ClusterView(Wire):
    """Identity of the node and its Kafka cluster, with the totals of the tier."""

    cluster_id: str
    kafka_cluster_id: Annotated[
        str | None,
        Field(description="Null if the directory was formatted for no particular Kafka cluster."),
    ]
    node_id: Annotated[int, Field(examples=[1])]
    version: Annotated[str, Field(examples=["0.1.0"])]
    leader_id: Annotated[
        int | None,
        NullBelowZero,
        Field(description="Leader of the metadata quorum; null while unknown."),
    ]
    totals: TierTotals
    problems: Annotated[
        list[NodeProblemView],
        Field(description="Problems that keep the queried node from a part of its work."),
    ]
    log_dir_problems: Annotated[
        list[LogDirProblemView],
        Field(description=f"The first {PROBLEMS_SHOWN_MAX} problems of the last scan."),
    ]
    log_dir_problem_count: Annotated[
        int, Field(description="Number of all problems of the last scan.")
    ]

    @classmethod
    def of_node(
        cls,
        identity: NodeIdentity,
        log: LogDescription,
        totals: Totals,
        problems: Sequence[NodeProblem],
        log_dir_problems: Sequence[LogDirProblem],
    ) -> ClusterView:
        """The view of a node, with the first `PROBLEMS_SHOWN_MAX` of `log_dir_problems`."""
        return cls.of(
            identity,
            leader_id=log.leader_id,
            totals=TierTotals.of_totals(totals),
            problems=[NodeProblemView.of_problem(each) for each in problems],
            log_dir_problem_count=len(log_dir_problems),
            log_dir_problems=[
                LogDirProblemView.of_problem(each) for each in log_dir_problems[:PROBLEMS_SHOWN_MAX]
            ],
        )


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
