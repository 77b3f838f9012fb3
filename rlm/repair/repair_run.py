"""One run of a repair: its request, findings and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kafka_formats.kafka_uuid import Uuid
from rlm.repair.repair_plan import RepairAction
from rlmm.segment import RemoteLogSegmentId

SEGMENTS_TOLD_MAX = 1_000
"""Limit of the damaged segments that a run describes; the rest is only counted."""


class RepairState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class Outcome(StrEnum):
    """The result for a damaged segment. WOULD: a dry run, or it must wait; COPIED: copied again,
    but not retired yet.
    """

    WOULD = "would"
    REPAIRED = "repaired"
    COPIED = "copied"
    UNREPAIRABLE = "unrepairable"
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """A request for a run. `topic` None: all topics. `segment` None: all damaged ones.
    `from_scrub`: only segments that scrubs or reads reported to this node. `apply` False: only
    report what would be done.
    """

    topic: str | None = None
    partition: int | None = None
    segment: Uuid | None = None
    from_scrub: bool = False
    apply: bool = False


@dataclass(slots=True)
class DamagedSegmentRepair:
    """The result for one damaged segment. Offsets are inclusive. `wrong`: the damage; `source`: the
    source of a whole copy, empty if there is none; `tried`: the other sources, each with the reason
    why it did not do. `new_segment`: the id of its new copy.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    size_bytes: int
    wrong: str
    action: RepairAction
    outcome: Outcome
    text: str
    source: str = ""
    tried: tuple[str, ...] = ()
    new_segment: Uuid | None = None


@dataclass(slots=True)
class RepairRun:
    """A run and its results so far. `checked`: the number of segments that were read;
    `checked_bytes`: their bytes. `elsewhere` names the nodes to ask for partitions that this node
    does not lead; `unread` gives the reasons why some segments could not be read.
    """

    id: Uuid
    request: RepairRequest
    by: str
    started_at_ms: int
    state: RepairState = RepairState.RUNNING
    ended_at_ms: int = -1
    text: str = ""
    checked: int = 0
    checked_bytes: int = 0
    damaged: int = 0
    repaired: int = 0
    segments: list[DamagedSegmentRepair] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add(self, segment: DamagedSegmentRepair) -> None:
        self.damaged += 1
        self.repaired += segment.outcome is Outcome.REPAIRED
        if len(self.segments) < SEGMENTS_TOLD_MAX:
            self.segments.append(segment)

    @property
    def standing(self) -> int:
        """Damaged segments that are not repaired."""
        return self.damaged - self.repaired
