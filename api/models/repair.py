"""Repairs of damaged segments."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictInt, StrictStr

from api.http.validation import parse_uuid
from api.models.base import Wire, known
from rlm.repair.repair_plan import RepairAction
from rlm.repair.repair_run import (
    DamagedSegmentRepair,
    Outcome,
    RepairRequest,
    RepairRun,
    RepairState,
)


class RepairAsked(Wire):
    """What is to be looked at, and whether it is mended."""

    topic: Annotated[
        StrictStr | None, Field(max_length=249, description="None: needs `from_scrub`.")
    ] = None
    partition: Annotated[StrictInt | None, Field(ge=0, le=2**31 - 1)] = None
    segment: Annotated[
        StrictStr | None, Field(max_length=100, description="The segment's id, a Kafka Uuid.")
    ] = None
    from_scrub: Annotated[
        StrictBool,
        Field(description="Only what scrubs and reads found, as far as they told this node."),
    ] = False
    apply: Annotated[StrictBool, Field(description="False: only look.")] = False

    def request(self) -> RepairRequest:
        """Map."""
        segment = None if self.segment is None else parse_uuid(self.segment, "segment")
        return RepairRequest(self.topic, self.partition, segment, self.from_scrub, self.apply)


class SegmentRepairView(Wire):
    """One damaged segment. Offsets are inclusive."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    wrong: str
    action: Annotated[
        RepairAction,
        Field(
            description="`copy_anew` under a new id; `retire`: others serve its offsets; `leave`."
        ),
    ]
    outcome: Annotated[
        Outcome,
        Field(
            description="`would`: only looked at, or not now. `repaired`. `copied`: the new one "
            "serves, the damaged one is not retired yet. `unrepairable`: all was asked and nothing "
            "has a whole copy. `left`, `failed` (a source that could not be asked, a full disk): "
            "see `text`."
        ),
    ]
    text: str
    source: Annotated[str, Field(description="Where a whole copy was found; empty: nowhere.")]
    tried: Annotated[list[str], Field(description="What was looked at besides, and why not.")]
    new_segment_id: str | None

    @classmethod
    def of(cls, told: DamagedSegmentRepair) -> Self:
        """Map."""
        tip = told.segment_id.partition
        return cls(
            topic=tip.topic,
            topic_id=str(tip.topic_id),
            partition=tip.partition,
            segment_id=str(told.segment_id.id),
            start_offset=told.start_offset,
            end_offset=told.end_offset,
            size_bytes=told.size_bytes,
            wrong=told.wrong,
            action=told.action,
            outcome=told.outcome,
            text=told.text,
            source=told.source,
            tried=list(told.tried),
            new_segment_id=None if told.new_segment is None else str(told.new_segment),
        )


class RepairView(Wire):
    """One run."""

    id: str
    by: str
    apply: bool
    state: RepairState
    text: str
    started_at_ms: int
    ended_at_ms: int | None
    checked: Annotated[int, Field(description="Segments that were read, byte by byte.")]
    checked_bytes: int
    damaged: Annotated[int, Field(description="All of them; `segments` has the first thousand.")]
    standing: Annotated[int, Field(description="Damaged ones that are not repaired.")]
    segments: list[SegmentRepairView]
    elsewhere: Annotated[
        list[str], Field(description="Partitions that another node leads: ask there.")
    ]
    unread: Annotated[list[str], Field(description="Segments of which nothing is known, and why.")]

    @classmethod
    def of(cls, run: RepairRun) -> Self:
        """Map."""
        return cls(
            id=str(run.id),
            by=run.by,
            apply=run.request.apply,
            state=run.state,
            text=run.text,
            started_at_ms=run.started_at_ms,
            ended_at_ms=known(run.ended_at_ms),
            checked=run.checked,
            checked_bytes=run.checked_bytes,
            damaged=run.damaged,
            standing=run.standing,
            segments=[SegmentRepairView.of(each) for each in run.segments],
            elsewhere=list(run.elsewhere),
            unread=list(run.unread),
        )
