"""Results of scrubs: what the job posts, and what is shown of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt, StrictStr

from api.http.validation import INT32_MAX, INT64_MAX, parse_uuid
from api.models.base import NextCursor, TopicIdText, Wire
from api.models.segments import SegmentView
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.node_files.scrub_results import DAMAGE_MAX, DamagedSegment, PartitionScrub, ScrubFinding
from rlmm.segment import RemoteLogSegmentMetadata

PARTITIONS_MAX = 100
"""In one body."""

FINDINGS_MAX = 20
_Count = Annotated[StrictInt, Field(ge=0, le=INT64_MAX)]
_Text = Annotated[StrictStr, Field(max_length=1_000)]
_Id = Annotated[StrictStr, Field(max_length=22)]


class ScrubFindingView(Wire):
    """What is wrong, where, and what to do. `position` is a byte of the object, `offset` where its
    records are.
    """

    object: Annotated[StrictStr, Field(max_length=1_500, description="The object's key.")]
    position: _Count | None
    offset: _Count | None
    what: _Text
    action: _Text

    @classmethod
    def of(cls, finding: ScrubFinding) -> ScrubFindingView:
        """Map."""
        return cls(
            object=finding.object,
            position=finding.position,
            offset=finding.offset,
            what=finding.what,
            action=finding.action,
        )


class DamagedSegmentView(Wire):
    """A segment that failed a check. Offsets are inclusive."""

    segment_id: _Id
    start_offset: _Count
    end_offset: _Count
    findings: Annotated[list[ScrubFindingView], Field(max_length=FINDINGS_MAX)]


class PartitionScrubView(Wire):
    """The last scrub of a partition: of the segments with `first_offset` to `last_offset`.

    `damaged` counts all damaged segments, `damage` describes the first of them; `unread` ones the
    store did not give; `deleted` ones went meanwhile.
    """

    topic: Annotated[StrictStr, Field(max_length=249)]
    topic_id: Annotated[TopicIdText, Field(max_length=22)]
    partition: Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]
    first_offset: _Count
    last_offset: _Count
    segments: _Count
    read_bytes: _Count
    unread: _Count
    deleted: _Count
    damaged: _Count
    scrubbed_at_ms: _Count
    damage: Annotated[list[DamagedSegmentView], Field(max_length=DAMAGE_MAX)]

    @classmethod
    def of(cls, result: PartitionScrub) -> PartitionScrubView:
        """Map."""
        return cls(
            topic=result.partition.topic,
            topic_id=str(result.partition.topic_id),
            partition=result.partition.partition,
            first_offset=result.first_offset,
            last_offset=result.last_offset,
            segments=result.segments,
            read_bytes=result.read_bytes,
            unread=result.unread,
            deleted=result.deleted,
            damaged=result.damaged,
            scrubbed_at_ms=result.scrubbed_at_ms,
            damage=[
                DamagedSegmentView(
                    segment_id=str(each.segment_id),
                    start_offset=each.start_offset,
                    end_offset=each.end_offset,
                    findings=[ScrubFindingView.of(finding) for finding in each.findings],
                )
                for each in result.damage
            ],
        )

    def result(self) -> PartitionScrub:
        """Map; InvalidRequest names what is no topic or id."""
        check_topic_name(self.topic)
        return PartitionScrub(
            TopicIdPartition(self.topic, parse_uuid(self.topic_id, "topic_id"), self.partition),
            self.first_offset,
            self.last_offset,
            self.segments,
            self.read_bytes,
            self.unread,
            self.deleted,
            max(self.damaged, len(self.damage)),
            self.scrubbed_at_ms,
            tuple(
                DamagedSegment(
                    parse_uuid(each.segment_id, "segment_id"),
                    each.start_offset,
                    each.end_offset,
                    tuple(
                        ScrubFinding(f.object, f.position, f.offset, f.what, f.action)
                        for f in each.findings
                    ),
                )
                for each in self.damage
            ),
        )


class ScrubSummary(Wire):
    """The last scrub of a partition that was told to this node, without its findings."""

    scrubbed_at_ms: int
    first_offset: int
    last_offset: int
    segments: int
    unread: Annotated[int, Field(description="Segments that the store did not give.")]
    damaged: Annotated[
        int, Field(description="Segments known to be damaged; `/v1/jobs/scrub` describes them.")
    ]

    @classmethod
    def of(cls, result: PartitionScrub | None) -> ScrubSummary | None:
        """Map."""
        if result is None:
            return None
        return cls(
            scrubbed_at_ms=result.scrubbed_at_ms,
            first_offset=result.first_offset,
            last_offset=result.last_offset,
            segments=result.segments,
            unread=result.unread,
            damaged=result.damaged,
        )


class SegmentDetail(SegmentView):
    """One segment, with what the last scrub told to this node says of it."""

    last_scrubbed_ms: Annotated[
        int | None,
        Field(description="Null: by no scrub that this node knows; or the store did not give all."),
    ]
    damage: Annotated[
        list[ScrubFindingView],
        Field(description="What a scrub found; stands until one has read the segment again."),
    ]

    @classmethod
    def of_scrubbed(
        cls, segment: RemoteLogSegmentMetadata, result: PartitionScrub | None
    ) -> SegmentDetail:
        """Map."""
        damaged = None if result is None else result.damage_of(segment.segment_id.id)
        reached = (
            result is not None
            and result.first_offset <= segment.start_offset
            and segment.end_offset <= result.last_offset
            and not result.unread
        )
        return cls(
            **SegmentView.of_segment(segment).model_dump(),
            last_scrubbed_ms=result.scrubbed_at_ms if result is not None and reached else None,
            damage=[ScrubFindingView.of(each) for each in (damaged.findings if damaged else ())],
        )


class ScrubPost(Wire):
    """Partitions whose segments were all scrubbed."""

    partitions: Annotated[list[PartitionScrubView], Field(max_length=PARTITIONS_MAX)]


class ScrubKept(Wire):
    """`unknown` partitions are none of this cluster's, or gone: nothing is kept of them."""

    kept: int
    unknown: int


class ScrubPage(Wire):
    """The last scrub of each partition, by topic and partition."""

    partitions: list[PartitionScrubView]
    damaged_segments: Annotated[int, Field(description="Of all partitions, not only this page's.")]
    next_cursor: NextCursor
