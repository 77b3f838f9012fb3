"""The cluster: who answers, what the tier holds, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from api.http.api_limits import PROBLEMS_SHOWN_MAX
from api.http.context import NodeIdentity
from api.models.base import Wire, known
from rlm.control.node_problem import NodeProblem
from rlm.control.reasons import AREAS
from rlm.local_log.log_dir import LogDirProblem
from rlmm.metadata_log import LogDescription
from rlmm.partition_state import Totals


class TierTotals(Wire):
    """What the tier holds, over all topics."""

    partitions: int
    copy_segment_started: Annotated[int, Field(description="Segments in this state.")]
    copy_segment_finished: Annotated[int, Field(examples=[120])]
    delete_segment_started: int
    size_bytes: Annotated[int, Field(description="Of the `.log` files of finished segments.")]


class LogDirProblemView(Wire):
    """A directory or file that this node cannot tier, and why."""

    path: str
    topic: Annotated[str | None, Field(description="Null: the trouble is with the directory.")]
    partition: int | None
    kind: str
    text: str

    @classmethod
    def of(cls, problem: LogDirProblem) -> LogDirProblemView:
        """Map. Paths may be any bytes; what is not UTF-8 is shown escaped."""
        return cls(
            path=_printable(str(problem.path)),
            topic=None if problem.topic is None else _printable(problem.topic),
            partition=problem.partition,
            kind=problem.kind.value,
            text=_printable(problem.message),
        )


class NodeProblemView(Wire):
    """Trouble of the whole node, and what to do."""

    about: Annotated[
        str,
        Field(
            description="What does not go on: "
            + "; ".join(f"`{area.value}`: {reason.stops}" for area, reason in AREAS.items()),
            examples=["store"],
        ),
    ]
    name: Annotated[
        str | None, Field(description="Of the store, partition, switch or reason; else null.")
    ]
    text: str

    @classmethod
    def of(cls, problem: NodeProblem) -> NodeProblemView:
        """Map."""
        return cls(about=problem.area.value, name=problem.name, text=_printable(problem.text))


class ClusterView(Wire):
    """Who answers, for which Kafka cluster, and how much it keeps."""

    cluster_id: str
    kafka_cluster_id: Annotated[
        str | None, Field(description="Null for a standalone directory of any cluster.")
    ]
    node_id: Annotated[int, Field(examples=[1])]
    version: Annotated[str, Field(examples=["0.1.0"])]
    leader_id: Annotated[
        int | None, Field(description="Leader of the metadata quorum; null while unknown.")
    ]
    totals: TierTotals
    problems: Annotated[
        list[NodeProblemView],
        Field(description="What keeps the node that answers from a part of its work."),
    ]
    log_dir_problems: Annotated[
        list[LogDirProblemView],
        Field(description=f"What the last scan could not take; the first {PROBLEMS_SHOWN_MAX}."),
    ]

    @classmethod
    def of(
        cls,
        identity: NodeIdentity,
        log: LogDescription,
        totals: Totals,
        problems: Sequence[NodeProblem],
        log_dir_problems: Sequence[LogDirProblem],
    ) -> ClusterView:
        """Map."""
        return cls(
            cluster_id=identity.cluster_id,
            kafka_cluster_id=identity.kafka_cluster_id,
            node_id=identity.node_id,
            version=identity.version,
            leader_id=known(log.leader_id),
            totals=TierTotals(
                partitions=totals.partitions,
                copy_segment_started=totals.copy_started,
                copy_segment_finished=totals.copy_finished,
                delete_segment_started=totals.delete_started,
                size_bytes=totals.size_bytes,
            ),
            problems=[NodeProblemView.of(problem) for problem in problems],
            log_dir_problems=[
                LogDirProblemView.of(problem) for problem in log_dir_problems[:PROBLEMS_SHOWN_MAX]
            ],
        )


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
