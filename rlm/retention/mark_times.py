"""The time of expiry marks: decides which are due, and which are joined into one.

A mark's time is measured twice: by this process's monotonic clock since it first saw the mark, and
by all nodes together, for processes that do not run long. The longer measurement counts; wall
clocks are not used (`rlmm/apply/expiry.py`, which has the last word).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Expiry, ExpiryMark

MARKS_IN_TRASH_TIME = 16
"""The approximate limit of a partition's marks: marks made within this part of the trash's time are
joined into one.
"""


@dataclass(frozen=True, slots=True)
class DueMark:
    """A mark that the log start may follow; this process has seen it for `seen_ms`."""

    mark: ExpiryMark
    seen_ms: int


def last_mark(expiry: Expiry) -> DueMark | None:
    """The last mark as a due one: for an admin who empties the trash without waiting."""
    if not expiry.marks:
        return None
    return DueMark(expiry.marks[-1], max(mark.trash_ms for mark in expiry.marks))


def mark_up_to(expiry: Expiry, offset: int) -> DueMark | None:
    """The mark that ends at this offset, as a due one; None if no mark does."""
    for number, mark in enumerate(expiry.marks, 1):
        if mark.offset == offset:
            return DueMark(mark, max(each.trash_ms for each in expiry.marks[:number]))
    return None


@dataclass(slots=True)
class MarksSeen:
    """The times at which this process first saw each mark, by its monotonic clock. `measured_ms`:
    the time that all nodes measured together.
    """

    monotonic: Callable[[], float]
    measured_ms: Callable[[], int]
    _since_s: dict[TopicIdPartition, dict[int, float]] = field(default_factory=dict)

    def look(self, tip: TopicIdPartition, expiry: Expiry) -> None:
        """Remember the present marks, and forget all earlier ones."""
        if not expiry.marks:
            self._since_s.pop(tip, None)
            return
        before, now_s = self._since_s.get(tip, {}), self.monotonic()
        offsets = {offset for mark in expiry.marks for offset in (mark.began_at, mark.marked_at)}
        self._since_s[tip] = {offset: before.get(offset, now_s) for offset in offsets}

    def keep(self, tips: Collection[TopicIdPartition]) -> None:
        """Forget all other partitions."""
        self._since_s = {tip: seen for tip, seen in self._since_s.items() if tip in tips}

    def due(self, tip: TopicIdPartition, expiry: Expiry) -> DueMark | None:
        """The last mark whose time is over and for which, counted from when it was seen, the time
        of all earlier marks is over too.
        """
        for reached in range(len(expiry.marks), 0, -1):
            mark = expiry.marks[reached - 1]
            seen_ms = self._seen_ms(tip, mark.marked_at)
            if all(self.left_ms(each, seen_ms) <= 0 for each in expiry.marks[:reached]):
                return DueMark(mark, seen_ms)
        return None

    def left_ms(self, mark: ExpiryMark, seen_ms: int) -> int:
        """Milliseconds until the log start may follow, by the same rule as in apply."""
        return max(0, mark.trash_ms - max(seen_ms, self.measured_ms() - mark.counts_from_ms))

    def joins(self, tip: TopicIdPartition, expiry: Expiry, trash_ms: int) -> bool:
        """True if a mark made now is joined with the last one."""
        if not expiry.marks:
            return False
        last = expiry.marks[-1]
        passed_ms = self._passed_ms(tip, last.began_at, last.began_ms)
        return passed_ms * MARKS_IN_TRASH_TIME < trash_ms

    def _passed_ms(self, tip: TopicIdPartition, offset: int, counts_from_ms: int) -> int:
        return max(self._seen_ms(tip, offset), self.measured_ms() - counts_from_ms)

    def _seen_ms(self, tip: TopicIdPartition, offset: int) -> int:
        since_s = self._since_s.get(tip, {}).get(offset)
        return 0 if since_s is None else int((self.monotonic() - since_s) * 1000)
