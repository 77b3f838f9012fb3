"""Partitions in a list over all nodes, and the segments of one as pieces of a strip."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from api.models.base import (
    EpochOrNull,
    LostRangeView,
    MetadataOffset,
    NextCursor,
    NullBelowZero,
    Offset,
    OffsetOrNull,
    PartitionName,
    Wire,
    name_of,
)
from api.models.cluster_parts import NodePartView, Surveyed
from api.models.partitions import LagOrNull, LagView
from api.models.views import GoneOffsets, NodeId
from rlm.copy.partition_status import PartitionStatus
from rlmm.rows.queries import ServedSegment


class Only(StrEnum):
    """A filter of the list."""

    BEHIND = "behind"
    BLOCKED = "blocked"
    LOST = "lost"

    def holds(self, status: PartitionStatus) -> bool:
        """True if the partition is shown."""
        match self:
            case Only.BLOCKED:
                return status.blocked is not None
            case Only.LOST:
                gone = status.lag is not None and status.lag.gone_offsets > 0
                return gone or bool(status.lost_ranges)
            case Only.BEHIND:
                return status.lag is not None and status.lag.segments > 0


class PartitionRow(PartitionName):
    """A partition as one node reports it: the node that reports the lag, if there is one."""

    node: NodeId
    role: str
    mode: str
    leader_epoch: EpochOrNull
    claimed_by_node: Annotated[int | None, NullBelowZero]
    log_start_offset: OffsetOrNull
    local_log_start_offset: OffsetOrNull
    next_offset: OffsetOrNull
    high_watermark: OffsetOrNull
    lag: LagOrNull
    gone_offsets: GoneOffsets
    lost_offsets: Annotated[int, Field(description="Offsets that are recorded as lost.")]
    local_bytes: Annotated[
        int | None, Field(description="Null: there is no replica on the node's machine.")
    ]
    remote_segments: int
    remote_bytes: int
    why_not_copying: Annotated[str | None, Field(examples=["back_off"])]
    why_not_text: str
    blocked: Annotated[
        str | None, Field(description="Set while a corrupt segment stops the partition.")
    ]

    @classmethod
    def of_status(cls, node_id: int, status: PartitionStatus) -> PartitionRow:
        """The row of a partition as one node reports it."""
        lag = status.lag
        return cls.of(
            status,
            **name_of(status.partition),
            node=node_id,
            mode=status.mode.name.lower(),
            lag=None if lag is None else LagView.of(lag),
            gone_offsets=0 if lag is None else lag.gone_offsets,
            lost_offsets=sum(each.end - each.start + 1 for each in status.lost_ranges),
        )

    @property
    def key(self) -> tuple[str, int, str]:
        """The sort key of the row."""
        return self.topic, self.partition, self.topic_id


def told_best(rows: Sequence[PartitionRow]) -> PartitionRow:
    """The best row of one partition among those of several nodes: from the node that reports the
    lag, else from one that has a replica.
    """
    return min(rows, key=lambda each: (each.lag is None, each.local_bytes is None, each.node))


class NodePartitionsView(Surveyed):
    """A page of the partitions that this node knows."""

    partitions: Annotated[list[PartitionRow], Field(description="By topic, number and topic id.")]
    next_cursor: NextCursor


class WholePartitionsView(Wire):
    """A page of the partitions of all nodes that answered, without duplicates."""

    nodes: list[NodePartView]
    partitions: Annotated[list[PartitionRow], Field(description="By topic, number and topic id.")]
    next_cursor: NextCursor


class StripPiece(Wire):
    """Offsets, both inclusive, that one segment serves."""

    start_offset: Offset
    end_offset: Offset
    segment_id: str
    size_bytes: Annotated[int, Field(description="Bytes of the whole `.log` file.")]
    max_timestamp_ms: int

    @classmethod
    def of_served(cls, served: ServedSegment) -> StripPiece:
        """The piece of the strip for one range of the coverage."""
        offsets, segment = served
        return cls(
            start_offset=offsets.first_offset,
            end_offset=offsets.last_offset,
            segment_id=str(segment.segment_id.id),
            size_bytes=segment.size_bytes,
            max_timestamp_ms=segment.max_timestamp_ms,
        )


class StripView(PartitionName):
    """Pieces of the tier between two offsets: all of them or, if there are too many, those at
    evenly spaced places.
    """

    first_offset: Annotated[int, Field(description="The first offset of the range.")]
    last_offset: Annotated[int, Field(description="The last offset of the range (inclusive).")]
    whole: Annotated[
        bool, Field(description="False: there may be further pieces between two listed ones.")
    ]
    pieces: list[StripPiece]
    lost_ranges: list[LostRangeView]
    metadata_offset: MetadataOffset
