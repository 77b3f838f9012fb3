"""The trash seen from outside: a reference of marks, told by accepted records and true time alone.

nothing_goes_before_its_time_in_the_trash  a log start follows marks that stood for their time, of
                                           a topic that was brought back since then
an_empty_takes_what_it_was_asked_for       an admin's empty follows the mark that he looked at
a_mark_hides_only_what_is_there            no mark is above the end of a log, also behind a cut
readers_start_above_the_mark_at_once       and at the log start once nothing is marked
only_what_an_admin_saw_is_taken_back       a restore names the last change of the trash
a_marked_topic_stands_still                nothing is marked or goes while its deletion is marked
a_joined_mark_has_the_later_time           a mark counts from its last record on
a_hold_stops_retention                     nothing is marked while a hold stands
readers_get_nothing_out_of_the_trash       nobody reads below the mark
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import (
    ExpiryMark,
    ExpiryTakenBack,
    LogStart,
    PartitionDeleteUndo,
)
from rlmm.rows import queries
from rlmm.rows.reads import read_measured_time, read_policy
from rlmm.segment import OFFSET_MAX

if TYPE_CHECKING:
    from sim.tier.world import World

UNKNOWN_OFFSET = -1


class Marked(NamedTuple):
    """A mark that was not taken back. Its last record was committed at metadata offset `marked_at`,
    at `at_ms`.
    """

    offset: int
    marked_at: int
    at_ms: int
    trash_ms: int


class Start(NamedTuple):
    """The place where readers start, and the log start, from metadata offset `since` on."""

    since: int
    readable: int
    log_start: int


@dataclass(slots=True)
class Trashed:
    """The trash of a partition. `changed_at` is the metadata offset of the last record about it,
    `seen_at` of the last one about the partition. `emptied` are the marks that admins had emptied,
    with the time that such an order claims. `lineage` is that of the last record.
    """

    marks: list[Marked] = field(default_factory=list)
    held_by: int | None = None
    changed_at: int = UNKNOWN_OFFSET
    seen_at: int = UNKNOWN_OFFSET
    starts: list[Start] = field(default_factory=lambda: [Start(-1, -1, -1)])
    emptied: set[tuple[int, int]] = field(default_factory=set)
    lineage: Epochs = ()

    def keep(self, marks: list[Marked], offset: int) -> None:
        """Keep these marks, after a record at metadata offset `offset`."""
        if marks != self.marks:
            nothing = not marks and self.held_by is None
            self.marks, self.changed_at = marks, UNKNOWN_OFFSET if nothing else offset


class TrashAudit:
    """Checks accepted records, readers and admins. `followed` counts log starts that followed a
    mark, `joined` marks that a later one went into, `restored` marks taken back, `emptied` those
    that an admin did not wait for, `cut` those that a lineage's cut lowered or took.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[TopicIdPartition, Trashed] = {}
        self.followed = self.joined = self.restored = self.emptied = self.cut = 0

    def of(self, tip: TopicIdPartition) -> Trashed:
        return self._of.setdefault(tip, Trashed())

    def _check(self, holds: bool, name: str, message: str) -> None:
        self._world.auditor.check(holds, name, message)

    @property
    def _offset(self) -> int:
        """The metadata offset of the record under judgement."""
        return self._world.log.end - 1

    def _state(self, tip: TopicIdPartition) -> PartitionState | None:
        return queries.partition_state(self._world.auditor.reference.rows, tip)

    # ---- records

    def marked(self, record: ExpiryMark) -> None:
        """Check a new mark against the holds, and the place where readers start."""
        tip, here = record.partition, self.of(record.partition)
        self._stands_still(tip, record)
        policy_offset = read_policy(self._world.auditor.reference.rows, tip.topic).offset
        self._check(
            here.held_by != policy_offset,
            "a_hold_stops_retention",
            f"{record} is accepted, and an admin took the policy of {policy_offset} back",
        )
        self._check(
            record.offset > here.starts[-1].readable,
            "readers_start_above_the_mark_at_once",
            f"{record} is accepted, and readers start at {here.starts[-1].readable} before it",
        )
        now_ms, others = self._world.schedule.now_ms, here.marks
        trash_ms = record.trash_ms
        self._counts_from_now_on(record)
        if record.joins and others:
            self.joined += 1
            trash_ms, others = max(trash_ms, others[-1].trash_ms), others[:-1]
        here.held_by = None
        here.keep([*others, Marked(record.offset, self._offset, now_ms, trash_ms)], self._offset)

    def _counts_from_now_on(self, record: ExpiryMark) -> None:
        """Check that the time of a mark begins no earlier than the time that the nodes measure as
        they read its record.
        """
        state = self._state(record.partition)
        assert state is not None
        began_ms = state.expiry.marks[-1].counts_from_ms
        now_ms = read_measured_time(self._world.auditor.reference.rows).ms + TIME_STEP_MS_MAX
        self._check(
            began_ms >= now_ms,
            "a_joined_mark_has_the_later_time",
            f"{record} is accepted at {now_ms}, and its time counts from {began_ms} on",
        )

    def taken_back(self, record: ExpiryTakenBack | PartitionDeleteUndo) -> None:
        """Forget the marks: from here on readers get the records that they hid. Those of a topic
        that is brought back count from now on.
        """
        if isinstance(record, PartitionDeleteUndo):
            self._brought_back(record.partition)
            return
        tip, here = record.partition, self.of(record.partition)
        self._stands_still(tip, record)
        self._check(
            record.replaces_offset == here.changed_at,
            "only_what_an_admin_saw_is_taken_back",
            f"{record} is accepted, and the trash changed at {here.changed_at}",
        )
        self.restored += bool(here.marks)
        rows = self._world.auditor.reference.rows
        here.marks = []
        here.held_by = read_policy(rows, tip.topic).offset if record.hold else None
        here.changed_at = self._offset if record.hold else UNKNOWN_OFFSET

    def _brought_back(self, tip: TopicIdPartition) -> None:
        """Let what is marked count from now on: nobody could take it back while the topic's
        deletion was marked.
        """
        here, now_ms = self.of(tip), self._world.schedule.now_ms
        here.marks = [mark._replace(at_ms=now_ms) for mark in here.marks]

    def log_start(self, record: LogStart, start: int) -> None:
        """Check that retention moved a log start from `start` only past marks whose time was over,
        or that an admin emptied.
        """
        tip, here = record.partition, self.of(record.partition)
        if record.mark_offset is None and self._world.following.is_on:
            return  # DeleteRecords, whose mark nobody asks for
        state = self._state(tip)
        if state is not None and state.mode is Mode.DELEGATED:
            return  # the broker's retention, which has no trash
        self._stands_still(tip, record)
        now_ms = self._world.schedule.now_ms
        below = [mark for mark in here.marks if mark.offset < record.offset]
        reached = here.marks[: len(below) + 1]
        told = f"the log start of {tip} moves from {start} to {record.offset} at {now_ms}, "
        told += f"by the mark of {record.mark_offset}; marked is {here.marks}"
        ordered = (record.mark_offset, record.seen_ms) in here.emptied
        if ordered or record.mark_offset is None:
            named = [m for m in here.marks if m.marked_at == record.mark_offset or not ordered]
            holds = any(record.offset <= mark.offset for mark in named)
            self._check(holds, "an_empty_takes_what_it_was_asked_for", told)
            self.emptied += 1
            return
        ripe = all(now_ms - mark.at_ms >= mark.trash_ms for mark in reached)
        holds = ripe and len(reached) > len(below)
        self._check(holds, "nothing_goes_before_its_time_in_the_trash", told)
        self.followed += 1

    def _stands_still(
        self, tip: TopicIdPartition, record: ExpiryMark | ExpiryTakenBack | LogStart
    ) -> None:
        state = self._state(tip)
        self._check(
            state is not None and state.delete_state is None,
            "a_marked_topic_stands_still",
            f"{record} is accepted, and the partition is to be deleted",
        )

    def committed(self, offset: int, tip: TopicIdPartition) -> None:
        """Check the partition after an accepted record about it, and note where readers start."""
        state, here = self._state(tip), self.of(tip)
        if state is None:
            self._of.pop(tip)
            return
        here.seen_at = offset
        end = max(state.log_start_offset, state.next_offset)
        self._check(
            state.first_readable_offset <= end,
            "a_mark_hides_only_what_is_there",
            f"readers of {tip} start at {state.first_readable_offset}, and its log is {end} long",
        )
        end = min(end, _cut_at(here.lineage, state.lineage))
        here.lineage = state.lineage
        left = _settled(here.marks, state.log_start_offset, end)
        self.cut += len(here.marks) > 0 and end < here.marks[-1].offset
        here.keep(left, offset)
        readable = max(state.log_start_offset, left[-1].offset if left else UNKNOWN_OFFSET)
        self._check(
            state.first_readable_offset == readable,
            "readers_start_above_the_mark_at_once",
            f"readers of {tip} start at {state.first_readable_offset}, not at {readable}",
        )
        self._check(
            state.expiry.offset == here.changed_at,
            "only_what_an_admin_saw_is_taken_back",
            f"the trash of {tip} changed at {here.changed_at}, not at {state.expiry.offset}",
        )
        if here.starts[-1][1:] != (readable, state.log_start_offset):
            here.starts.append(Start(offset, readable, state.log_start_offset))

    # ---- readers

    def starts_within(self, tip: TopicIdPartition, span: tuple[int, int]) -> list[Start]:
        """Each start that was in force while a view went over the metadata offsets of `span`."""
        starts = self.of(tip).starts
        stood = [each for each in starts if each.since <= span[0]][-1:]
        return stood + [each for each in starts if span[0] < each.since <= span[1]]

    def read(self, tip: TopicIdPartition, first: int, span: tuple[int, int]) -> None:
        """Check that a reader who got records from `first` on, while the view went over `span`, got
        none that lay in the trash all the time.
        """
        lowest = min(each.readable for each in self.starts_within(tip, span))
        self._check(
            first >= lowest,
            "readers_get_nothing_out_of_the_trash",
            f"a reader of {tip} got {first}, and could read from {lowest} on",
        )


def _cut_at(before: Epochs, after: Epochs) -> int:
    """The first offset that a different leader wrote, by the lineage: no mark was about that
    record. Heads count from where both are known. An earlier lineage that comes back may continue
    after it.
    """
    if not before or not after:
        return OFFSET_MAX
    known = max(before[0].start_offset, after[0].start_offset)
    for start in sorted({known, *(each.start_offset for each in (*before, *after))}):
        differs = epoch_for_offset(before, start) != epoch_for_offset(after, start)
        if start >= known and differs:
            return start
    return OFFSET_MAX


def _settled(marks: list[Marked], log_start: int, end: int) -> list[Marked]:
    """The marks above the log start, lowered to the end of the log."""
    left: list[Marked] = []
    lowest = log_start
    for mark in marks:
        if (offset := min(mark.offset, end)) > lowest:
            left.append(mark._replace(offset=offset))
            lowest = offset
    return left
