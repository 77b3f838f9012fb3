"""Results of scrubs, as the job posts them and as they are shown."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictInt, StrictStr

from api.http.validation import INT32_MAX, INT64_MAX, parse_uuid
from api.models.base import NextCursor, TopicIdText, Wire, id_text, name_of
from api.models.segments import SegmentView
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.node_files.scrub_results import DAMAGE_MAX, DamagedSegment, PartitionScrub, ScrubFinding
from rlmm.segment import RemoteLogSegmentMetadata

PARTITIONS_MAX = 100
"""The most partitions in one body."""

FINDINGS_MAX = 20
_Count = Annotated[StrictInt, Field(ge=0, le=INT64_MAX)]
_Text = Annotated[StrictStr, Field(max_length=1_000)]
_Id = Annotated[StrictStr, BeforeValidator(id_text), Field(max_length=22)]


class ScrubFindingView(Wire):
    """A finding: what is wrong, where, and what to do. `position` is a byte of the object, `offset`
    that of its records.
    """

    object: Annotated[StrictStr, Field(max_length=1_500, description="The object's key.")]
    position: _Count | None
    offset: _Count | None
    what: _Text
    action: _Text


class DamagedSegmentView(Wire):
    """A segment that failed a check; offsets are inclusive."""

    segment_id: _Id
    start_offset: _Count
    end_offset: _Count
    findings: Annotated[list[ScrubFindingView], Field(max_length=FINDINGS_MAX)]


class PartitionScrubView(Wire):
    """The last scrub of a partition, of its segments from `first_offset` to `last_offset`.
    `damaged` counts all damaged segments, `damage` describes the first of them; `unread` segments
    could not be read from the store; `deleted` ones were deleted meanwhile.
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
    def of_scrub(cls, result: PartitionScrub) -> PartitionScrubView:
        """The view of a scrub that was posted to this node."""
        return cls.of(result, **name_of(result.partition))

    def result(self) -> PartitionScrub:
        """Parse the result. InvalidRequest: a topic name or id is invalid."""
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
    """The last scrub of a partition posted to this node, without its findings."""

    scrubbed_at_ms: int
    first_offset: int
    last_offset: int
    segments: int
    unread: Annotated[int, Field(description="Segments that could not be read from the store.")]
    damaged: Annotated[
        int, Field(description="Segments known to be damaged; `/v1/jobs/scrub` describes them.")
    ]


class SegmentDetail(SegmentView):
    """A segment, with the result of the last scrub posted to this node."""

    last_scrubbed_ms: Annotated[
        int | None,
        Field(
            description="Null: this node has no scrub of it, or some segments could not be read."
        ),
    ]
    damage: Annotated[
        list[ScrubFindingView],
        Field(
            description="Findings of a scrub; kept until a later scrub has read the segment again."
        ),
    ]

    @classmethod
    def of_scrubbed(
        cls, segment: RemoteLogSegmentMetadata, result: PartitionScrub | None
    ) -> SegmentDetail:
        """The view of a segment, with the last scrub of its partition."""
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
    """Partitions all of whose segments were scrubbed."""

    partitions: Annotated[list[PartitionScrubView], Field(max_length=PARTITIONS_MAX)]


class ScrubKept(Wire):
    """The result of a post. `unknown` partitions, of a different cluster or deleted, are
    not kept.
    """

    kept: int
    unknown: int


class ScrubPage(Wire):
    """The last scrub of each partition, by topic and partition."""

    partitions: list[PartitionScrubView]
    damaged_segments: Annotated[
        int, Field(description="Damaged segments in all partitions, not only on this page.")
    ]
    next_cursor: NextCursor
