"""Plans which segments of a partition's tier are deleted, when, and why. Pure.

The rules are Kafka's (RemoteLogManager's expiration task), applied to the merged lineage, but one
segment that cannot be deleted delays no other. Log start moves first, so that every offset at or
above it always has the segment that serves it; apply accepts the plan only in this order
(`rlmm/apply/segments.py`, IN_USE).

With a trash the policy sets an expiry mark, which the log start follows once its time is over; and
what a later leader's log lacks stays for that time, since a leader that has it brings it back.

Only the tier's COPY_SEGMENT_FINISHED segments count: neither unfinished copies (KAFKA-17062) nor
the broker's own segments (KAFKA-20732) push other segments out of retention. A byte counts at most
once, and only in the lineage: overlapped segments, and those partly outside the lineage, count as
zero. So a little more than configured is kept, never less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from rlm.retention.live_segments import Live, gone_with, is_past, settled, start_by_size
from rlmm.partition_state import UNLIMITED, ExpiryMark, Mode, PartitionState, TopicPolicy
from rlmm.rows.coverage import EpochRange, epoch_ranges, ranges_in_lineage
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata, SegmentState

BRAKE_SEGMENTS_MIN = 10
"""The fewest segments for which the brake applies: a small topic may expire as a whole."""


class Reason(Enum):
    """The reason for a segment's deletion."""

    TIME = "retention_time"
    SIZE = "retention_size"
    LOG_START = "below_log_start"
    UNREFERENCED = "outside_the_lineage"
    TRASH = "trash_time_over"


UNCOUNTED = frozenset({Reason.LOG_START, Reason.TRASH})
"""Reasons that the brake does not count: the policy's decision about them is recorded already."""


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The facts of one partition at one moment.

    `segments` may have rows of any state. `now_ms` is this node's clock, which agrees with the
    store's unless `held_back`, the reason why nothing may be deleted now, is set. `percent_max`:
    the share of the partition's tiered bytes that one pass may delete, besides the segments that
    are `accepted`. `whose` names the source of the retention. `trash_ms`: the time from an expiry
    mark until the log start follows, 0 for no trash; `due`: the last mark whose time is over;
    `stayed`: segments that have been outside the lineage for that time.
    """

    state: PartitionState
    segments: Sequence[RemoteLogSegmentMetadata]
    policy: TopicPolicy
    now_ms: int
    percent_max: float
    held_back: str | None = None
    accepted: frozenset[Uuid] = frozenset()
    whose: str = "the topic's policy"
    trash_ms: int = 0
    due: ExpiryMark | None = None
    stayed: frozenset[Uuid] = frozenset()


@dataclass(frozen=True, slots=True)
class Deletion:
    """A segment to delete. `stays`: not yet, since a leader with its records may bring it back."""

    row: RemoteLogSegmentMetadata
    reason: Reason
    text: str
    stays: bool = False


@dataclass(frozen=True, slots=True)
class LogStartMove:
    """The new log start; `leader_epoch` is the lineage's epoch of that offset."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The plan of a pass. `log_start` moves first, then `deletions` follow in this order, then
    `mark`, which moves `marked` into the trash.

    `held_back`: why nothing may be deleted now. `brake`: the share is too large, of all segments or
    of those that a later leader's log lacks, so only segments below the recorded log start may be
    deleted; the same holds for a `hold` of an admin. `next_due_ms`: the Unix time at which time
    retention reaches the next segment, None if never by itself. `size_bytes`: of the finished
    segments; `expiring_bytes`: the plan's share of it, without segments below the recorded log
    start and in the trash.
    """

    log_start: LogStartMove | None
    deletions: tuple[Deletion, ...]
    next_due_ms: int | None
    held_back: str | None
    brake: str | None
    size_bytes: int
    expiring_bytes: int
    text: str
    policy: TopicPolicy = field(default_factory=TopicPolicy)
    whose: str = "the topic's policy"
    mark: LogStartMove | None = None
    marked: tuple[Deletion, ...] = ()
    hold: str | None = None
    trash_ms: int = 0

    @property
    def taken(self) -> tuple[Deletion, ...]:
        """All segments that this pass hides from readers or deletes."""
        return (*self.deletions, *self.marked)

    @property
    def taken_now(self) -> tuple[Deletion, ...]:
        """The segments of `taken` that do not stay."""
        return tuple(each for each in self.taken if not each.stays)

    @property
    def expiring_now_bytes(self) -> int:
        """`expiring_bytes` without the segments that stay."""
        staying = (each.row.size_bytes for each in self.deletions if each.stays)
        return self.expiring_bytes - sum(staying)

    @property
    def stays(self) -> frozenset[Uuid]:
        """The segments that stay."""
        return frozenset(each.row.segment_id.id for each in self.deletions if each.stays)

    @property
    def outside_lineage(self) -> frozenset[Uuid]:
        """The segments that a later leader's log lacks."""
        return frozenset(
            each.row.segment_id.id for each in self.deletions if each.reason is Reason.UNREFERENCED
        )

    @property
    def only_waits(self) -> bool:
        """True if the pass changes nothing, and only the time of `stays` has to pass."""
        quiet = self.held_back is None and self.brake is None and self.up_to is None
        return quiet and not self.taken_now

    @property
    def up_to(self) -> LogStartMove | None:
        """The first readable offset after the pass, None if it does not change."""
        return self.mark or self.log_start

    @property
    def move_now(self) -> LogStartMove | None:
        """The log start to record in this pass."""
        return None if self.stopped else self.log_start

    @property
    def mark_now(self) -> LogStartMove | None:
        """The expiry mark to record in this pass."""
        return None if self.stopped else self.mark

    @property
    def delete_now(self) -> tuple[Deletion, ...]:
        """The segments to mark in this pass."""
        if self.held_back:
            return ()
        if self.stopped:
            return tuple(each for each in self.deletions if each.reason is Reason.LOG_START)
        return tuple(each for each in self.deletions if not each.stays)

    @property
    def stopped(self) -> str | None:
        """The reason why the policy deletes and marks nothing now."""
        return self.held_back or self.brake or self.hold


def plan_retention(facts: RetentionFacts) -> RetentionPlan:
    """The plan of a pass. Takes time in proportion to the number of segments."""
    state = facts.state
    finished = [row for row in facts.segments if row.state is SegmentState.COPY_SEGMENT_FINISHED]
    size_bytes = sum(row.size_bytes for row in finished)
    held_back = _not_ours(state) or facts.held_back
    if not state.lineage or state.log_start_offset < 0:
        why = held_back or "the log start is not recorded yet"
        return RetentionPlan(
            None, (), None, why, None, size_bytes, 0, f"nothing goes: {why}",
            facts.policy, facts.whose,
        )  # fmt: skip
    live, gone = _sorted_out(facts, finished)
    gone = [_later(each, facts) if _may_return(each, facts) else each for each in gone]
    target = settled(state.log_start_offset, _new_log_start(facts, live), live)
    start, going = target if not facts.trash_ms else (state.log_start_offset, [])
    if facts.due is not None and facts.due.offset > start:
        start, going = facts.due.offset, gone_with(facts.due.offset, live)
    in_trash = {each.row.segment_id.id for each in live if each.high < state.expiry.below}
    deletions = (*gone, *(_expired(each, facts, in_trash) for each in going))
    mark, marked = _marked(facts, target, in_trash)
    taken = (*deletions, *marked)
    counted = [each for each in taken if each.reason not in UNCOUNTED]
    kept_rows = [row for row in finished if row.segment_id.id not in in_trash]
    kept_bytes = sum(row.size_bytes for row in kept_rows)
    counted_now = [each for each in counted if not each.stays]
    staying_bytes = sum(each.row.size_bytes for each in counted if each.stays)
    # What stays counts on neither side: it must not make the policy's share look smaller.
    brake = _brake(facts, counted_now, kept_bytes - staying_bytes)
    brake = brake or _cut_off(facts, taken, kept_rows)
    hold = _hold(facts)
    kept = [each for each in live if each.high >= target[0]]
    plan = RetentionPlan(
        _move(state, start),
        deletions,
        _next_due_ms(kept, target[0]),
        held_back,
        brake,
        size_bytes,
        sum(each.row.size_bytes for each in counted),
        "",
        facts.policy,
        facts.whose,
        mark,
        marked,
        hold,
        facts.trash_ms,
    )
    return replace(plan, text=_text(plan))


def _may_return(each: Deletion, facts: RetentionFacts) -> bool:
    """True for a segment outside the lineage that a leader with its records may still bring back:
    its time is not over, nor its retention, no admin accepted its deletion, and the log start is
    not above it.
    """
    row, id_ = each.row, each.row.segment_id.id
    return (
        facts.trash_ms > 0
        and each.reason is Reason.UNREFERENCED
        and row.end_offset >= facts.state.log_start_offset
        and not is_past(_expires_ms(row, facts.policy), facts.now_ms)
        and id_ not in facts.stayed
        and id_ not in facts.accepted
    )


def _later(each: Deletion, facts: RetentionFacts) -> Deletion:
    text = (
        f"{each.text}; it stays for {facts.trash_ms / 1000:g} s from when this was seen, since a "
        "leader that has its records brings it back"
    )
    return replace(each, text=text, stays=True)


def _move(state: PartitionState, start: int) -> LogStartMove | None:
    if start <= state.log_start_offset:
        return None
    return LogStartMove(start, _epoch_of(state.lineage, start))


def _marked(
    facts: RetentionFacts, target: tuple[int, list[Live]], in_trash: Collection[Uuid]
) -> tuple[LogStartMove | None, tuple[Deletion, ...]]:
    """The mark for the policy's log start, and the segments that it brings into the trash."""
    start, going = target
    if not facts.trash_ms or start <= facts.state.first_readable_offset:
        return None, ()
    below = (each for each in going if each.high < start)
    new = (each for each in below if each.row.segment_id.id not in in_trash)
    return _move(facts.state, start), tuple(_expired(each, facts) for each in new)


def _hold(facts: RetentionFacts) -> str | None:
    hold = facts.state.expiry.held_by(facts.policy.offset)
    if hold is None:
        return None
    return (
        f"{hold.who} took back what it had marked; it is on hold until the topic's retention "
        "changes, or `strandline trash release` ends the hold"
    )


def _not_ours(state: PartitionState) -> str | None:
    if state.mode is not Mode.SIDECAR:
        return f"the partition's mode is {state.mode.name}: nodes expire segments in SIDECAR only"
    if state.delete_state is not None:
        return f"the partition itself is being deleted ({state.delete_state.name})"
    if state.adopting:
        return "the partition's segments in the store are not recorded yet"
    return None


def _sorted_out(
    facts: RetentionFacts, finished: Iterable[RemoteLogSegmentMetadata]
) -> tuple[list[Live], list[Deletion]]:
    """The serving segments, and those below log start or outside the lineage."""
    state = facts.state
    live: list[Live] = []
    gone: list[Deletion] = []
    for row in finished:
        ranges = _in_lineage(state.lineage, row)
        if not ranges:
            text = "no offset of it lies in the lineage of leader epochs"
            gone.append(Deletion(row, Reason.UNREFERENCED, text))
            continue
        high = max(each.end for each in ranges)
        if row.end_offset < state.log_start_offset:
            text = f"it ends below the log start {state.log_start_offset}"
            gone.append(Deletion(row, Reason.LOG_START, text))
            continue
        if high < state.log_start_offset:
            text = f"its offsets from the log start {state.log_start_offset} on are in no lineage"
            gone.append(Deletion(row, Reason.UNREFERENCED, text))
            continue
        above = (each for each in ranges if each.end >= state.log_start_offset)
        low = min(max(each.start, state.log_start_offset) for each in above)
        live.append(Live(row, low, high, ranges, _expires_ms(row, facts.policy)))
    gone.sort(key=lambda each: (each.row.start_offset, each.row.segment_id.id))
    return live, gone


def _in_lineage(lineage: Epochs, row: RemoteLogSegmentMetadata) -> tuple[EpochRange, ...]:
    """The ranges of a segment that look-ups can reach."""
    return tuple(
        EpochRange(each.epoch, start, end)
        for each in epoch_ranges(row)
        for start, end in ranges_in_lineage(lineage, (each,))
    )


def _expires_ms(row: RemoteLogSegmentMetadata, policy: TopicPolicy) -> int | None:
    """The end of the segment's retention. Records without timestamps have that of their copy."""
    if policy.retention_ms == UNLIMITED:
        return None
    newest_ms = row.max_timestamp_ms if row.max_timestamp_ms >= 0 else row.event_timestamp_ms
    return newest_ms + policy.retention_ms


def _new_log_start(facts: RetentionFacts, live: Sequence[Live]) -> int:
    """The end of the offsets that are all out of retention, by size or by time."""
    by_size = start_by_size(facts.policy.retention_bytes, facts.state.log_start_offset, live)
    kept = [
        max(each.low, by_size)
        for each in live
        if each.high >= by_size and not each.is_expired(facts.now_ms)
    ]
    ends = [each.high + 1 for each in live if each.is_expired(facts.now_ms)]
    by_time = min(max(ends, default=0), min(kept, default=facts.state.next_offset))
    below = min(facts.state.next_offset, _first_under_way(facts))
    return max(min(max(by_size, by_time), below), facts.state.log_start_offset)


def _first_under_way(facts: RetentionFacts) -> int:
    """The start of the first copy under way. It may fill a lost range with records that are younger
    than those after it, so the log start waits for it.
    """
    claim, started = facts.state.claim, SegmentState.COPY_SEGMENT_STARTED
    own = (row for row in facts.segments if claim is not None and row.token == claim.token)
    return min((row.start_offset for row in own if row.state is started), default=OFFSET_MAX)


def _expired(each: Live, facts: RetentionFacts, in_trash: Collection[Uuid] = ()) -> Deletion:
    policy = facts.policy
    if each.row.segment_id.id in in_trash:
        why = "its time in the trash is over" if facts.trash_ms else "retention keeps no trash"
        return Deletion(each.row, Reason.TRASH, why)
    if each.is_expired(facts.now_ms):
        over_s = (facts.now_ms - (each.expires_ms or 0)) / 1000
        text = (
            f"its newest record is past retention_ms {policy.retention_ms} for {over_s:.0f} s, by "
            f"{facts.whose}"
        )
        return Deletion(each.row, Reason.TIME, text)
    text = f"the tier holds retention_bytes {policy.retention_bytes} without it, by {facts.whose}"
    return Deletion(each.row, Reason.SIZE, text)


def _epoch_of(lineage: Epochs, offset: int) -> int:
    epoch = epoch_for_offset(lineage, offset)
    return lineage[0].epoch if epoch is None else epoch


def _brake(facts: RetentionFacts, deletions: Sequence[Deletion], size_bytes: int) -> str | None:
    counted = [
        each.row.size_bytes for each in deletions if each.row.segment_id.id not in facts.accepted
    ]
    expiring, expiring_bytes = len(counted), sum(counted)
    if expiring < BRAKE_SEGMENTS_MIN or expiring_bytes * 100 <= facts.percent_max * size_bytes:
        return None
    percent = expiring_bytes * 100 / max(1, size_bytes)
    return (
        f"this pass would take {expiring} segments, {percent:.1f} % of the partition's tiered "
        f"bytes, and retention.max_percent is {facts.percent_max:g}: look at the plan, then accept "
        "it once or set the policy right"
    )


def _cut_off(
    facts: RetentionFacts,
    deletions: Sequence[Deletion],
    finished: Sequence[RemoteLogSegmentMetadata],
) -> str | None:
    """The brake for segments that a leader cut off. A leader that lacks most of the history, as
    after its disk was lost, cuts off what may be the last copy of it; so even a few segments count.

    The share is the largest one at any moment, of the bytes copied until then: segments that were
    copied or cut off later do not make it smaller. Segments that are deleted in this pass for other
    reasons, or are out of retention, count on neither side.
    """
    going = {each.row.segment_id.id: each.reason for each in deletions}
    cut_bytes = left_bytes = count = 0
    worst = (0.0, 0)
    for row in sorted(finished, key=lambda row: row.finished_at):
        if is_past(_expires_ms(row, facts.policy), facts.now_ms):
            continue
        reason = going.get(row.segment_id.id)
        if reason is None:
            left_bytes += row.size_bytes
        elif reason is Reason.UNREFERENCED and row.segment_id.id not in facts.accepted:
            cut_bytes += row.size_bytes
            count += 1
            worst = max(worst, (cut_bytes * 100 / max(1, cut_bytes + left_bytes), count))
    percent, count = worst
    if percent <= facts.percent_max:
        return None
    return (
        f"a later leader's log lacks the records of {count} segments, {percent:.1f} % of what had "
        f"been copied by then, and retention.max_percent is {facts.percent_max:g}: if that leader "
        "lost its disk, these are the last copy. Let a replica that has the records lead, or look "
        "at the plan, then accept it once"
    )


def _next_due_ms(kept: Sequence[Live], start: int) -> int | None:
    """The time when all segments that keep log start from moving are out of retention."""
    first = min((max(each.low, start) for each in kept), default=None)
    due = [each.expires_ms for each in kept if max(each.low, start) == first]
    known = [each for each in due if each is not None]
    return max(known) + 1 if known else None


def _text(plan: RetentionPlan) -> str:
    if not plan.taken and plan.up_to is None:
        if (plan.policy.retention_ms, plan.policy.retention_bytes) == (UNLIMITED, UNLIMITED):
            return f"nothing goes: {plan.whose} keeps everything"
        return "nothing goes: everything is within retention"
    if plan.stopped is not None:
        return f"nothing goes now: {plan.stopped}"
    parts = []
    stays = len(plan.stays)
    going = len(plan.deletions) - stays
    if plan.log_start is not None or going:
        move = plan.log_start
        start = "" if move is None else f"log start moves to {move.offset}, then "
        parts.append(f"{start}{going} segments go")
    if stays:
        parts.append(
            f"{stays} segments outside the lineage stay for {plan.trash_ms / 1000:g} s "
            "from when this was seen"
        )
    if plan.mark is not None:
        parts.append(
            f"readers start at {plan.mark.offset}, and {len(plan.marked)} segments are in the "
            f"trash for {plan.trash_ms / 1000:g} s"
        )
    return "; ".join(parts)
