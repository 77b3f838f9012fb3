"""Retention with a trash: admins who take marks back, and what must hold of marks, log starts and
readers.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import CopyLimits
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import ExpiryMark, ExpiryTakenBack, LogStart
from rlmm.rows import queries
from rlmm.rows.expiry import all_expiries
from rlmm.rows.reads import read_policy

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

PERIOD_MS = 15_000
DEADLINE_S = 10.0


class _Marked(NamedTuple):
    """A mark that nobody has taken back, and when it was committed."""

    offset: int
    at_ms: int


class Trash:
    """The trash of a world. `followed` counts log starts that followed a mark, `restored` what
    admins took back.
    """

    def __init__(self, world: World, *, is_on: bool) -> None:
        self._world = world
        self._random = Random(f"trash {world.seed}")
        self.is_on = self._goes_on = is_on
        self._marks: dict[TopicIdPartition, list[_Marked]] = {}
        self._held_by: dict[TopicIdPartition, int] = {}
        self._readable: dict[TopicIdPartition, list[tuple[int, int]]] = {}
        self.followed = self.restored = 0

    def limits(self, limits: CopyLimits) -> CopyLimits:
        """Limits of the nodes, with a trash."""
        if not self.is_on:
            return limits
        return replace(limits, retention_trash_s=self._random.choice((15.0, 40.0)))

    # ---- admins

    def begin(self) -> None:
        """Take something back now and then."""
        if not self._goes_on:
            return
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups:
            process = self._random.choice(ups)
            hold = bool(self._random.randrange(2))
            self._world.loop.spawn(process.life, self._take_back(process, hold=hold))
        self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self.begin)

    def stop(self) -> None:
        """Nothing more is taken back."""
        self._goes_on = False

    async def _take_back(self, process: Process, *, hold: bool) -> None:
        manager, view = process.manager, process.view
        if manager is None or view is None:
            return
        found = sorted(all_expiries(view), key=lambda each: str(each[0]))
        if not found:
            return
        tip, expiry = self._random.choice(found)
        self._world.note(f"an admin takes back {tip}, by {process.machine.name}")
        record = ExpiryTakenBack(tip, expiry.offset, hold, "an admin", "")
        try:
            await manager.take_expiry_back(record, deadline_s=DEADLINE_S)
        except StrandlineError as error:
            self._world.note(f"an admin is told {type(error).__name__}")

    # ---- invariants

    def marked(self, record: ExpiryMark) -> None:
        """Check a new mark against the holds."""
        tip = record.partition
        policy_offset = read_policy(self._world.auditor.reference.rows, tip.topic).offset
        self._world.auditor.check(
            self._held_by.get(tip) != policy_offset,
            "a_hold_stops_retention",
            f"{record} is accepted, and an admin took the policy of {policy_offset} back",
        )
        marks = self._marks.setdefault(tip, [])
        marks.append(_Marked(record.offset, self._world.schedule.now_ms))

    def taken_back(self, record: ExpiryTakenBack) -> None:
        """Forget the marks: from here on readers get what they hid."""
        tip = record.partition
        self._held_by.pop(tip, None)
        if record.hold:
            rows = self._world.auditor.reference.rows
            self._held_by[tip] = read_policy(rows, tip.topic).offset
        self.restored += bool(self._marks.pop(tip, []))

    def log_start(self, record: LogStart, start: int) -> None:
        """Check that retention moved a log start from `start` only behind a mark, which stood for
        the time of the trash.
        """
        tip, now_ms = record.partition, self._world.schedule.now_ms
        trash_ms = round(self._world.limits.retention_trash_s * 1000)
        marks = self._marks.get(tip, [])
        hid_all = [mark for mark in marks if mark.offset >= record.offset]
        self._world.auditor.check(
            bool(hid_all) and now_ms - hid_all[0].at_ms >= trash_ms,
            "nothing_goes_before_its_time_in_the_trash",
            f"the log start of {tip} moves from {start} to {record.offset} at {now_ms}, kept are "
            f"{trash_ms} ms, marked is {marks}",
        )
        self.followed += 1
        self._marks[tip] = [mark for mark in marks if mark.offset > record.offset]

    def committed(self, offset: int, tip: TopicIdPartition) -> None:
        """Check the partition behind a record about it, and remember what readers get."""
        if not self.is_on:
            return
        state = queries.partition_state(self._world.auditor.reference.rows, tip)
        if state is None:
            return
        self._world.auditor.check(
            state.first_readable_offset <= max(state.log_start_offset, state.next_offset),
            "a_mark_hides_only_what_is_there",
            f"readers of {tip} start at {state.first_readable_offset}, and what comes next is "
            f"{state.next_offset}",
        )
        bound = max(state.log_start_offset, state.next_offset)
        marks = self._marks.get(tip, [])  # behind a cut lineage they hide nothing
        self._marks[tip] = [mark._replace(offset=min(mark.offset, bound)) for mark in marks]
        since = self._readable.setdefault(tip, [(-1, -1)])
        if since[-1][1] != (first := _readable_from(state)):
            since.append((offset, first))

    def read(self, tip: TopicIdPartition, first: int, span: tuple[int, int]) -> None:
        """Check that a reader who got records from `first` on, while the view went over `span`, got
        none that lay in the trash all the time.
        """
        since = self._readable.get(tip)
        if not self.is_on or since is None:
            return
        stood = [each for each in since if each[0] <= span[0]][-1:]
        stood += [each for each in since if span[0] < each[0] <= span[1]]
        lowest = min(start for _, start in stood)
        self._world.auditor.check(
            first >= lowest,
            "readers_get_nothing_out_of_the_trash",
            f"a reader of {tip} got {first}, and could read from {lowest} on",
        )

    def left_to_do(self) -> Iterator[str]:
        """Marks whose time passes, once nobody takes them back."""
        if not self.is_on:
            return
        rows = self._world.auditor.reference.rows
        for partition in self._world.brokers.partitions:
            state = queries.partition_state(rows, partition.tip)
            if state is not None and state.expiry.marks:
                yield f"{partition.tip} has {state.expiry.marks} in the trash"


def _readable_from(state: PartitionState) -> int:
    return max(state.log_start_offset, *(mark.offset for mark in state.expiry.marks), -1)
