"""Plans a partition's next step of copying, or the reason for a wait. Pure: facts in, one step out.

After Kafka's RemoteLogManager copy task (KIP-405): a segment is copied if it is sealed, its next
base offset is at or below the last stable offset, it lies in the merged lineage and it *contains*
the next offset (its base may be lower, because a new leader's segment borders differ).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from kafka_formats.leader_epoch_checkpoint import Epochs, entries_in_range, epoch_for_offset
from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind
from rlm.control.why_not import Wait, WhyNot
from rlm.local_log.gap_rule import Offsets
from rlmm.lineage import within_lineage
from rlmm.partition_state import PartitionState
from rlmm.segment import OFFSET_MAX


class Segment(Protocol):
    """A local segment; `next_base_offset` None: active, never copied."""

    @property
    def base_offset(self) -> int:
        """The first offset of the segment's range, its file name."""

    @property
    def next_base_offset(self) -> int | None:
        """The base offset of the following segment."""

    @property
    def size_bytes(self) -> int:
        """The size of the `.log` file."""

    @property
    def first_known_offset(self) -> int:
        """The first offset with a known epoch, if DeleteRecords removed the records below it; else
        any value at or below the base.
        """


AnySegment = TypeVar("AnySegment", bound=Segment)


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Everything the decision depends on. `segments` ascend; the first `linked_count` of them are
    held from local retention and may leave gaps, or overlap; the others are the broker's own.

    `local_log_start_offset`: the larger of the broker's log start and the first segment's base.
    `last_stable_offset` belongs to the epoch of the claim in force. `fills_tried`: ranges of
    segments copied, or tried, into a lost range under this claim. `paused` and `clock_trouble` are
    sentences, or None. `log_start_said`: the broker's log start from its answer or its checkpoint,
    whichever is larger. `files_wanted_from`: the log should have files from this offset on; it is
    the same log start, or without a broker the first epoch's start if that is larger.
    """

    segments: Sequence[Segment]
    checkpoint: Epochs
    local_log_start_offset: int
    last_stable_offset: int
    state: PartitionState
    now_ms: int
    back_off: BackOff = NO_BACK_OFF
    fills_tried: frozenset[Offsets] = frozenset()
    linked_count: int = 0
    paused: str | None = None
    clock_trouble: str | None = None
    log_start_said: int = OFFSET_MAX
    files_wanted_from: int = OFFSET_MAX


@dataclass(frozen=True, slots=True)
class CopySegment:
    """Copy the segment [base, next base). `fills_lost_range`: it is below the next offset. `gone`:
    the log should have files there but has none, so its batches are fetched.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    fills_lost_range: bool = False
    gone: bool = False

    @property
    def end_offset(self) -> int:
        """The last offset of the range, inclusive."""
        return self.next_base_offset - 1

    @property
    def offsets(self) -> Offsets:
        """The first and last offset, which identify the segment: when a replica is fetched again,
        a segment of the same base may have a different end.
        """
        return self.base_offset, self.end_offset


@dataclass(frozen=True, slots=True)
class RecordLogStart:
    """Record that the tier's log begins at `offset`, where the local log begins now; nothing was
    copied yet.
    """

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RecordLostRange:
    """Record offsets [start, end] (inclusive) as lost: gone from this log and never copied."""

    start: int
    end: int
    why: str


Step = CopySegment | RecordLogStart | RecordLostRange | Wait


def plan(facts: PlanFacts) -> Step:
    """The next step of a partition whose claim this node holds."""
    held_back = _held_back(facts)
    if held_back is not None:
        return held_back
    if not facts.segments:
        return Wait(WhyNot.NO_SEALED_SEGMENT, "the log directory holds no segment")
    facts = _without_diverged_held(facts)
    if facts.state.next_offset < 0:
        return _first_log_start(facts)
    for segment in _sealed(facts.segments):
        if _fills_a_lost_range(facts, segment):
            return _copy(segment, fills_lost_range=True)
    first = _first_offset_left(facts)
    if first > facts.state.next_offset:
        return _gap(facts, first)
    return _next_segment(facts)


def _held_back(facts: PlanFacts) -> Wait | None:
    if facts.paused is not None:
        return Wait(WhyNot.PAUSED, facts.paused)
    back_off = facts.back_off
    if back_off.waits_at(facts.now_ms):
        why = WhyNot.BLOCKED if back_off.kind is FailureKind.CORRUPT else WhyNot.BACK_OFF
        return Wait(why, back_off.text, back_off.until_ms)
    return None


def _epochs_missing(facts: PlanFacts) -> Wait | None:
    """Wait if records below the first known epoch may still exist: either DeleteRecords removed
    them, or the checkpoint was lost and begun again. They are lost only once the broker or its log
    start checkpoint reports that the log starts above them: without a recorded log start Kafka uses
    the first segment's base (LogLoader.load).
    """
    first = facts.segments[facts.linked_count]
    known_from = facts.local_log_start_offset
    start = max(first.base_offset, facts.log_start_said, facts.state.next_offset)
    if start >= known_from:
        return None
    return Wait(
        WhyNot.EPOCHS_MISSING,
        f"offsets {start} to {known_from - 1} are on the disk, below the first epoch of the "
        f"leader-epoch-checkpoint, which begins at offset {known_from}, and the broker's log "
        f"starts at {max(first.base_offset, facts.log_start_said)}: that checkpoint was lost. Let "
        "another replica lead, or restore it from one while this broker is down; nothing is "
        "recorded as lost meanwhile. After DeleteRecords it passes within a minute, when the "
        "broker writes its log-start-offset-checkpoint",
    )


def _first_log_start(facts: PlanFacts) -> Step:
    missing = _epochs_missing(facts)
    if missing is not None:
        return missing
    if facts.clock_trouble is not None:
        return Wait(WhyNot.CLOCK, facts.clock_trouble)
    offset = min(_history_start(facts), max(facts.files_wanted_from, _first_epoch_start(facts)))
    if offset > facts.last_stable_offset:
        # A broker's log never starts above its last stable offset: such facts are damaged or from
        # different moments, and a recorded log start never goes back.
        return _waiting_for_lso(facts, offset)
    epoch = epoch_for_offset(facts.checkpoint, offset)
    if epoch is None:
        # The checkpoint's head may be written a moment after log start moved: its first entry is
        # the epoch that log start will have.
        if not facts.checkpoint:
            return Wait(WhyNot.NO_LEADER_EPOCH, "leader-epoch-checkpoint has no entry")
        epoch = facts.checkpoint[0].epoch
    return RecordLogStart(offset, epoch)


def _history_start(facts: PlanFacts) -> int:
    """The start of the history on this machine, with held segments of the lineage that join the
    live log.

    DeleteRecords sets a log start inside the first segment; no record below it comes back. Segments
    whose epochs the claim did not contain may belong to a different history, and cannot be copied.
    """
    offset = facts.local_log_start_offset
    if offset > facts.segments[facts.linked_count].base_offset:
        return offset
    for segment in reversed(facts.segments[: facts.linked_count]):
        if segment.next_base_offset is None or segment.next_base_offset < offset:
            break
        first = _first_known(segment)
        if epoch_for_offset(facts.state.lineage, first) is None:
            break
        offset = first
        if offset > segment.base_offset:
            break
    return offset


def _without_diverged_held(facts: PlanFacts) -> PlanFacts:
    """The facts without held segments outside the lineage: they can never be copied, and must not
    delay others.
    """
    linked = facts.segments[: facts.linked_count]
    fitting = [
        segment
        for segment in linked
        if segment.next_base_offset is not None
        and _in_lineage(facts, segment, segment.next_base_offset)
    ]
    if len(fitting) == len(linked):
        return facts
    return replace(
        facts, segments=(*fitting, *facts.segments[facts.linked_count :]), linked_count=len(fitting)
    )


def _first_offset_left(facts: PlanFacts) -> int:
    """The base of the first segment that reaches the next offset, at least the broker's log start
    for its own segments.

    A gap among the broker's own segments is damage, or was seen while the broker changed the
    directory: it is not recorded as lost.
    """
    for segment in facts.segments[: facts.linked_count]:
        end = segment.next_base_offset
        if end is None or end > facts.state.next_offset:
            return _first_known(segment)
    return facts.local_log_start_offset


def _gap(facts: PlanFacts, first: int) -> Step:
    missing = _epochs_missing(facts)
    if missing is not None:
        return missing
    if facts.last_stable_offset < first:
        # The segments on disk may not be committed yet, so neither is the gap before them.
        return _waiting_for_lso(facts, first)
    start, kept_from = facts.state.next_offset, min(first, facts.files_wanted_from)
    if start >= kept_from:
        return CopySegment(start, first, 0, gone=True)
    return RecordLostRange(
        start,
        kept_from - 1,
        f"the segments on this machine begin at offset {kept_from}: the broker deleted others "
        "before they were copied (local retention, DeleteRecords, or a replica that started later)",
    )


def rests_on_log_start(step: Step, facts: PlanFacts) -> bool:
    """True if the step would differ with a higher log start of the broker."""
    match step:
        case CopySegment():
            return step.gone
        case RecordLogStart():
            return step.offset < _history_start(facts)
        case RecordLostRange():
            return False
    return step.why is WhyNot.EPOCHS_MISSING


def _first_epoch_start(facts: PlanFacts) -> int:
    return facts.checkpoint[0].start_offset if facts.checkpoint else OFFSET_MAX


def _next_segment(facts: PlanFacts) -> Step:
    next_offset = facts.state.next_offset
    for segment in _sealed(facts.segments):
        end = segment.next_base_offset
        if end is None or not segment.base_offset <= next_offset < end:
            continue
        if end > facts.last_stable_offset:
            return _waiting_for_lso(facts, end)
        if not _in_lineage(facts, segment, end):
            return Wait(
                WhyNot.DIVERGED,
                f"segment {segment.base_offset} to {end - 1} does not lie in the partition's "
                "lineage; a leader with a higher epoch wrote different records at these offsets",
            )
        return _copy(segment, fills_lost_range=False)
    last_base = facts.segments[-1].base_offset
    if next_offset < last_base:
        return Wait(WhyNot.HOLE_IN_LOG, f"no local segment contains the next offset {next_offset}")
    return Wait(
        WhyNot.NO_SEALED_SEGMENT,
        f"everything below offset {next_offset} is copied; the active segment {last_base} is not "
        "copied before the broker rolls it",
    )


def _waiting_for_lso(facts: PlanFacts, needed: int) -> Wait:
    return Wait(
        WhyNot.WAITING_FOR_LSO,
        f"the last stable offset is {facts.last_stable_offset}; the segment needs {needed} "
        "(an open transaction, a slow replica, or a high watermark not yet on disk)",
    )


def _sealed(segments: Sequence[Segment]) -> Iterator[Segment]:
    return (segment for segment in segments if segment.next_base_offset is not None)


def _fills_a_lost_range(facts: PlanFacts, segment: Segment) -> bool:
    base, end = segment.base_offset, segment.next_base_offset
    if end is None or end > facts.last_stable_offset or (base, end - 1) in facts.fills_tried:
        return False
    first = _first_served(facts, segment)
    overlaps = any(
        # Later ranges are handled when copying reaches them.
        max(lost.start, first) <= min(lost.end, end - 1) and lost.start < facts.state.next_offset
        for lost in facts.state.lost_ranges
    )
    return overlaps and _in_lineage(facts, segment, end)


def _first_served(facts: PlanFacts, segment: Segment) -> int:
    """The first offset of the segment that the lineage serves: it serves no record of an epoch
    below its own first one.
    """
    first, lineage = _first_known(segment), facts.state.lineage
    if not lineage:
        return first
    lowest = lineage[0].epoch
    served = (entry.start_offset for entry in facts.checkpoint if entry.epoch >= lowest)
    return max(first, next(served, first))


def _first_known(segment: Segment) -> int:
    return max(segment.base_offset, segment.first_known_offset)


def _in_lineage(facts: PlanFacts, segment: Segment, next_base: int) -> bool:
    """True if the segment's own epochs are in the merged lineage. Only epochs from its first known
    offset on are compared: below it the checkpoint has those of held segments.
    """
    base = segment.base_offset
    epochs = entries_in_range(facts.checkpoint, _first_known(segment), next_base)
    log_end = max(facts.last_stable_offset, next_base)
    return within_lineage(base, next_base - 1, epochs, facts.state.lineage, log_end)


def _copy(segment: Segment, *, fills_lost_range: bool) -> CopySegment:
    end = segment.next_base_offset
    assert end is not None, "only sealed segments are copied"
    return CopySegment(segment.base_offset, end, segment.size_bytes, fills_lost_range)


def eligible_bytes(facts: PlanFacts) -> int:
    """The backlog: bytes of sealed, committed segments at or after the next offset."""
    return sum(
        segment.size_bytes
        for segment in uncopied(facts.segments, facts.state.next_offset)
        if segment.next_base_offset is not None
        and segment.next_base_offset <= facts.last_stable_offset
    )


def uncopied(segments: Iterable[AnySegment], next_offset: int) -> tuple[AnySegment, ...]:
    """Sealed segments that will be copied from the next offset on, in that order, if nothing else
    happens. A segment is left out if earlier ones, such as a longer held one, cover it.
    """
    found = []
    for segment in segments:
        end = segment.next_base_offset
        if end is not None and end > next_offset:
            found.append(segment)
            next_offset = end
    return tuple(found)
