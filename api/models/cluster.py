"""The cluster and its metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from api.context import NodeIdentity
from api.limits import PROBLEMS_SHOWN_MAX
from api.models.base import Offset, OffsetOrNull, Wire, known
from rlm.log_dir import LogDirProblem
from rlm.node_problem import NodeProblem
from rlmm.metadata_log import LogDescription, ReplicaState
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
            description="`log_dirs` (nothing new is copied), `store` (what lies in it is neither "
            "read nor removed), `clock` (nothing is removed).",
            examples=["store"],
        ),
    ]
    name: Annotated[str | None, Field(description="Of the store; null otherwise.")]
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


class ReplicaView(Wire):
    """A voter or observer, as the leader sees it."""

    node_id: int
    directory_id: str
    log_end_offset: OffsetOrNull
    last_fetch_ms: int | None
    last_caught_up_ms: int | None

    @classmethod
    def of(cls, replica: ReplicaState) -> ReplicaView:
        """Map."""
        return cls(
            node_id=replica.node_id,
            directory_id=replica.directory_id,
            log_end_offset=known(replica.log_end_offset),
            last_fetch_ms=known(replica.last_fetch_ms),
            last_caught_up_ms=known(replica.last_caught_up_ms),
        )


class QuorumView(Wire):
    """The metadata log and this node's place in it."""

    leader_id: int | None
    leader_epoch: Annotated[int, Field(examples=[12])]
    high_watermark: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    applied_offset: Annotated[
        int, Field(description="Metadata offset up to which this node's view is.", examples=[5231])
    ]
    digest: Annotated[
        str,
        Field(
            description="Of the view's rows, hex: equal on all nodes at the same applied offset."
        ),
    ]
    voters: list[ReplicaView]
    observers: list[ReplicaView]

    @classmethod
    def of(cls, log: LogDescription, applied_offset: int, digest: bytes) -> QuorumView:
        """Map."""
        return cls(
            leader_id=known(log.leader_id),
            leader_epoch=log.leader_epoch,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            applied_offset=applied_offset,
            digest=digest.hex(),
            voters=[ReplicaView.of(voter) for voter in log.voters],
            observers=[ReplicaView.of(observer) for observer in log.observers],
        )
