"""Repairs of damaged segments."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictInt, StrictStr

from api.http.validation import parse_uuid
from api.models.base import IdText, NullBelowZero, Wire, name_of
from rlm.repair.repair_plan import RepairAction
from rlm.repair.repair_run import (
    DamagedSegmentRepair,
    Outcome,
    RepairRequest,
    RepairRun,
    RepairState,
)


class RepairAsked(Wire):
    """Segments to check, and permission to repair them."""

    topic: Annotated[
        StrictStr | None, Field(max_length=249, description="Null: needs `from_scrub`.")
    ] = None
    partition: Annotated[StrictInt | None, Field(ge=0, le=2**31 - 1)] = None
    segment: Annotated[
        StrictStr | None, Field(max_length=100, description="The segment's id, a Kafka Uuid.")
    ] = None
    from_scrub: Annotated[
        StrictBool,
        Field(description="Only damage that scrubs and reads reported to this node."),
    ] = False
    apply: Annotated[StrictBool, Field(description="False: only report.")] = False

    def request(self) -> RepairRequest:
        segment = None if self.segment is None else parse_uuid(self.segment, "segment")
        return RepairRequest(self.topic, self.partition, segment, self.from_scrub, self.apply)


class SegmentRepairView(Wire):
    """A damaged segment and its repair; offsets are inclusive."""

    topic: str
    topic_id: str
    partition: int
    segment_id: IdText
    start_offset: int
    end_offset: int
    size_bytes: int
    wrong: str
    action: Annotated[
        RepairAction,
        Field(
            description="`copy_anew`: copy again under a new id; `retire`: other segments serve "
            "its offsets; `leave`."
        ),
    ]
    outcome: Annotated[
        Outcome,
        Field(
            description="`would`: a dry run, or postponed. `repaired`. `copied`: the new segment "
            "serves, the damaged one is not retired yet. `unrepairable`: every source was "
            "asked and none has an undamaged copy. `left`, `failed` (a source that could "
            "not be asked, a full disk): see `text`."
        ),
    ]
    text: str
    source: Annotated[str, Field(description="Source of an undamaged copy; empty: none was found.")]
    tried: Annotated[
        list[str],
        Field(description="Other sources that were asked, and why they could not be used."),
    ]
    new_segment_id: IdText | None

    @classmethod
    def of_repair(cls, told: DamagedSegmentRepair) -> Self:
        """The view of a damaged segment and its repair."""
        id_ = told.segment_id
        return cls.of(
            told, **name_of(id_.partition), segment_id=id_.id, new_segment_id=told.new_segment
        )


class RepairView(Wire):
    """A run of repairs."""

    id: IdText
    by: str
    apply: bool
    state: RepairState
    text: str
    started_at_ms: int
    ended_at_ms: Annotated[int | None, NullBelowZero]
    checked: Annotated[int, Field(description="Segments read, byte by byte.")]
    checked_bytes: int
    damaged: Annotated[
        int, Field(description="Number of all damaged segments; `segments` has the first thousand.")
    ]
    standing: Annotated[int, Field(description="Damaged segments that are not repaired.")]
    segments: list[SegmentRepairView]
    elsewhere: Annotated[
        list[str],
        Field(description="Partitions whose leader is beside a different node: ask that node."),
    ]
    unread: Annotated[list[str], Field(description="Segments that could not be read, and why.")]

    @classmethod
    def of_run(cls, run: RepairRun) -> Self:
        """The view of a run and the damaged segments that it found."""
        segments = [SegmentRepairView.of_repair(each) for each in run.segments]
        return cls.of(run, apply=run.request.apply, segments=segments)
