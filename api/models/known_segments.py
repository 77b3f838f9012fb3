"""The state of segment ids in the metadata, for comparing a listing of a store with it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictInt, StrictStr

from api.http.validation import INT32_MAX, parse_uuid
from api.models.base import Wire
from api.models.segments import SegmentStateName
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.reconcile.collection_plan import Known
from rlmm.segment import RemoteLogSegmentId

ASKED_MAX = 1_000


class AskedSegment(Wire):
    """A segment id as in an object's key."""

    topic: Annotated[StrictStr, Field(max_length=1_000)]
    topic_id: Annotated[StrictStr, Field(max_length=100)]
    partition: Annotated[StrictInt, Field(ge=0, le=INT32_MAX)]
    segment_id: Annotated[StrictStr, Field(max_length=100)]

    def id(self) -> RemoteLogSegmentId:
        check_topic_name(self.topic)
        topic_id = parse_uuid(self.topic_id, "topic_id")
        partition = TopicIdPartition(self.topic, topic_id, self.partition)
        return RemoteLogSegmentId(partition, parse_uuid(self.segment_id, "segment_id"))


class KnownRequest(Wire):
    """Segments that were listed before this request."""

    segments: Annotated[list[AskedSegment], Field(max_length=ASKED_MAX)]


class Knowledge(StrEnum):
    """The state of an id. `row`: the metadata has the segment. `deleted`: its deletion is complete.
    `never`: the metadata never had it.
    """

    ROW = "row"
    DELETED = "deleted"
    NEVER = "never"


class KnownView(Wire):
    """The state of one segment id, in the order of the request."""

    segment_id: str
    knowledge: Knowledge
    state: SegmentStateName | None
    start_offset: int | None
    due_ms: Annotated[
        int | None,
        Field(
            description="Time from which the segment's objects may be deleted, once it is marked."
        ),
    ]

    @classmethod
    def of_known(cls, asked: RemoteLogSegmentId, known: Known) -> KnownView:
        row = known.row
        if row is None or row.segment_id != asked:  # the id belongs to a different partition
            return cls(
                segment_id=str(asked.id),
                knowledge=Knowledge.DELETED if row is None and known.deleted else Knowledge.NEVER,
                state=None,
                start_offset=None,
                due_ms=None,
            )
        return cls(
            segment_id=str(asked.id),
            knowledge=Knowledge.ROW,
            state=SegmentStateName(row.state.name),
            start_offset=row.start_offset,
            due_ms=known.due_ms,
        )


class KnownSegments(Wire):
    """The state of each requested segment id."""

    segments: list[KnownView]
