"""Lag, sizes, running work and problems: each node's part, and the view of the whole cluster."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Annotated, Literal

from pydantic import Field

from api.http.survey import WORST_SHOWN, Survey, TopicSize, urgency
from api.models.base import IdText, NextCursor, OffsetOrNull, PartitionName, Wire, name_of
from api.models.cluster import ClusterView, LogDirProblemView, NodeProblemView, TierTotals
from api.models.cluster_parts import NodePartView, Surveyed
from api.models.partitions import LagView
from rlm.copy.partition_status import CopyUnderWay, PartitionStatus
from rlm.delete.clean_up_tasks import PendingCleanUp

NodeId = Annotated[int, Field(description="The node that reports it.", examples=[3])]
GoneOffsets = Annotated[
    int,
    Field(
        description="Uncopied offsets that the broker no longer has and that are not recorded as "
        "lost."
    ),
]


class LaggingView(PartitionName):
    """A partition that is behind, as the node that copies it reports it."""

    node: NodeId
    lag: LagView
    gone_offsets: GoneOffsets
    why_not_copying: Annotated[str | None, Field(examples=["back_off"])]
    why_not_text: str
    blocked: Annotated[
        str | None, Field(description="Set while a corrupt segment stops the partition.")
    ]

    @classmethod
    def of_status(cls, node_id: int, status: PartitionStatus) -> LaggingView:
        """The view of a partition's status, which has a lag."""
        assert status.lag is not None, "a partition that is behind has a lag"
        return cls.of(
            status,
            **name_of(status.partition),
            node=node_id,
            lag=LagView.of(status.lag),
            gone_offsets=status.lag.gone_offsets,
        )

    @property
    def key(self) -> tuple[str, int, str, int]:
        """The row's place in the list."""
        return self.topic, self.partition, self.topic_id, self.node


class LagSumView(LagView):
    """The sum over partitions, with the highest age."""

    partitions: Annotated[int, Field(description="Partitions whose lag is known.")]
    behind: Annotated[int, Field(description="Partitions of these that lag or are blocked.")]
    blocked: Annotated[int, Field(description="Partitions that a corrupt segment stops.")]
    gone_offsets: GoneOffsets

    @classmethod
    def of_survey(cls, survey: Survey) -> LagSumView:
        """The sum over all partitions of a node."""
        return cls.of(
            survey.lag,
            partitions=survey.reported,
            behind=len(survey.behind),
            blocked=sum(each.blocked is not None for each in survey.behind),
        )

    @classmethod
    def of_sums(cls, sums: Sequence[LagSumView]) -> LagSumView:
        """The sum over all nodes."""
        names = [name for name in cls.model_fields if name != "age_ms"]
        counts = {name: sum(getattr(each, name) for each in sums) for name in names}
        return cls(age_ms=max((each.age_ms for each in sums), default=0), **counts)


def worst_of(partitions: Iterable[LaggingView]) -> list[LaggingView]:
    """The most urgent of these partitions."""
    return heapq.nsmallest(
        WORST_SHOWN,
        partitions,
        key=lambda each: urgency(each.gone_offsets, each.blocked, each.lag.age_ms),
    )


Worst = Annotated[
    list[LaggingView],
    Field(
        description=f"The {WORST_SHOWN} most urgent: first those with gone offsets, then blocked "
        "ones, then the oldest lag."
    ),
]


class NodeLagView(Surveyed):
    """Lag of the partitions that this node copies."""

    total: LagSumView
    worst: Worst
    partitions: Annotated[
        list[LaggingView],
        Field(description="Partitions that are behind, by topic, number and topic id."),
    ]
    next_cursor: NextCursor


class NodeLagSum(LagSumView):
    """The sum of one node."""

    node: NodeId


class WholeLagView(Wire):
    """Lag over all nodes that answered."""

    nodes: list[NodePartView]
    total: LagSumView
    by_node: list[NodeLagSum]
    worst: Worst
    partitions: Annotated[
        list[LaggingView],
        Field(description="Partitions that are behind, by topic, number, topic id and node."),
    ]
    next_cursor: NextCursor


class TopicSizeView(Wire):
    """Sizes of all topic ids of one topic name."""

    topic: Annotated[str, Field(examples=["payments"])]
    partitions: int
    remote_segments: int
    remote_bytes: Annotated[int, Field(description="Bytes in the tier, its trash included.")]
    trash_bytes: Annotated[
        int, Field(description="Part of `remote_bytes` that an expiry mark hides from readers.")
    ]
    replicas: Annotated[int, Field(description="Replicas on the brokers' disks.")]
    local_bytes: Annotated[
        int,
        Field(description="Bytes of their `.log` files, and of held segments.", examples=[4096]),
    ]

    @classmethod
    def of_nodes(cls, parts: Sequence[tuple[int, TopicSizeView]]) -> TopicSizeView:
        """The sizes over all nodes. Each part comes with its metadata offset: the tier's sizes are
        those of the node with the highest one.
        """
        _, newest = max(parts, key=itemgetter(0))
        return newest.model_copy(
            update={
                "replicas": sum(each.replicas for _, each in parts),
                "local_bytes": sum(each.local_bytes for _, each in parts),
            }
        )


class LocalSizeView(Wire):
    """Sizes on one node's machine."""

    node: NodeId
    replicas: int
    local_bytes: int

    @classmethod
    def of_topics(cls, node_id: int, topics: Sequence[TopicSize]) -> LocalSizeView:
        """The sum over all topics."""
        return cls(
            node=node_id,
            replicas=sum(each.replicas for each in topics),
            local_bytes=sum(each.local_bytes for each in topics),
        )


class NodeSizesView(Surveyed):
    """Sizes on this node's machine, and those of the tier by its metadata."""

    local: LocalSizeView
    topics: list[TopicSizeView]
    next_cursor: NextCursor


class WholeSizesView(Wire):
    """Sizes over all nodes that answered. Replicas are counted on each machine, the tier once."""

    nodes: list[NodePartView]
    tier: TierTotals
    local: list[LocalSizeView]
    topics: Annotated[list[TopicSizeView], Field(description="By name.")]
    next_cursor: NextCursor


class RunningView(PartitionName):
    """A copy under way, or a deletion of a segment's objects."""

    node: NodeId
    kind: Literal["copy", "delete"]
    segment_id: IdText
    start_offset: OffsetOrNull
    end_offset: OffsetOrNull
    bytes_done: int | None
    bytes_total: int | None
    due_ms: Annotated[
        int | None, Field(description="Time from which the last of its objects may be deleted.")
    ]
    why: str | None

    @classmethod
    def of_work(cls, node_id: int, work: CopyUnderWay | PendingCleanUp) -> RunningView:
        """A copy, or a deletion."""
        id_ = work.segment_id
        names = dict(name_of(id_.partition), node=node_id, segment_id=id_.id)
        if isinstance(work, CopyUnderWay):
            return cls.of(work, **names, kind="copy", due_ms=None, why=None)
        return cls.of(
            work, **names, kind="delete", start_offset=None, end_offset=None, bytes_done=None,
            bytes_total=None,
        )  # fmt: skip

    @property
    def key(self) -> tuple[str, int, str, str, int]:
        """The row's place in the list."""
        return self.topic, self.partition, self.topic_id, self.segment_id, self.node


class RunningSumView(Wire):
    """Number of copies and deletions, and the bytes of the copies."""

    copies: int
    bytes_done: int
    bytes_total: int
    deletions: int

    @classmethod
    def of_sums(cls, sums: Sequence[RunningSumView]) -> RunningSumView:
        """The sum over all nodes."""
        return cls(**{name: sum(getattr(each, name) for each in sums) for name in cls.model_fields})


class NodeRunningView(Wire):
    """Work that is under way on this node."""

    total: RunningSumView
    running: Annotated[list[RunningView], Field(description="By partition and segment id.")]
    next_cursor: NextCursor


class WholeRunningView(Wire):
    """Work that is under way on all nodes that answered."""

    nodes: list[NodePartView]
    total: RunningSumView
    running: Annotated[list[RunningView], Field(description="By partition, segment id and node.")]
    next_cursor: NextCursor


class ProblemOfNode(NodeProblemView):
    """A problem of a whole node."""

    node: NodeId


class LogDirProblemOfNode(LogDirProblemView):
    """A problem in a node's log directories."""

    node: NodeId


class WholeProblemsView(Wire):
    """Problems of all nodes that answered."""

    nodes: list[NodePartView]
    problems: list[ProblemOfNode]
    log_dir_problem_count: int
    log_dir_problems: Annotated[
        list[LogDirProblemOfNode], Field(description="The first hundred problems of each node.")
    ]

    @classmethod
    def of_parts(cls, nodes: list[NodePartView], parts: Sequence[ClusterView]) -> WholeProblemsView:
        """The problems of all nodes, by node."""
        return cls(
            nodes=nodes,
            problems=[
                ProblemOfNode.of(each, node=part.node_id)
                for part in parts
                for each in part.problems
            ],
            log_dir_problem_count=sum(part.log_dir_problem_count for part in parts),
            log_dir_problems=[
                LogDirProblemOfNode.of(each, node=part.node_id)
                for part in parts
                for each in part.log_dir_problems
            ],
        )
