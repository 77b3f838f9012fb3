"""The damage of a sealed segment of this replica, and the parts of it that can be copied. Pure.

A survey of a damaged segment gives its good batches as runs; the offsets between them are missing.
Runs fetched from other replicas fill the holes, and the segment is copied as a whole. Offsets
outside every assigned replica's log, or that an admin gave up, become a lost range; then each
stretch between lost ranges is copied by itself, under its own first offset. The same is done for
the steps of a hole that is too large to be fetched at once, and for the parts of a segment that is
too large for one segment of the tier.

Offsets are recorded as lost without an admin only on proof: every assigned replica's broker reports
that its log starts above them or ends before them, and no file of this machine may have them. That
a replica covers them and sends no batch proves nothing: a flipped bit may hide the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats.log_names import LOG_SUFFIX, segment_file_name
from rlm.local_log.gap_rule import Offsets, ranges_text
from rlmm.partition_state import LostOffsets
from rlmm.segment import OFFSET_MAX

STRETCH_BYTES_MAX = 2**31 - 1
"""The longest stretch: a segment's size is an int32 in its metadata
(RemoteLogSegmentMetadataRecord.json).
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive good batches, `first` to `last` (inclusive), in a file."""

    first: int
    last: int
    path: Path
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ThinnedHole:
    """Offsets `first` to `last` (inclusive): damaged batches at `bases`, perhaps legal gaps."""

    first: int
    last: int
    bases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """A segment's own runs, ascending, and the missing offsets between them. `aborts`: offsets of
    ABORT markers. `max_timestamp_ms`: of all batches, -1 without any. `thinned`: holes that are in
    `missing` too, except below the log start. `doubtful`: holes that a good batch may belong to
    (its place in the log is unknown, or it claims the hole's offsets), and parts that can't be read
    or were not looked at.
    """

    runs: tuple[Run, ...]
    missing: tuple[Offsets, ...]
    aborts: tuple[int, ...]
    max_timestamp_ms: int
    thinned: tuple[ThinnedHole, ...] = ()
    doubtful: tuple[Offsets, ...] = ()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets to copy as one segment: `first` to `last` (inclusive), in adjacent runs."""

    first: int
    last: int
    runs: tuple[Run, ...]

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged segment [base, next base) as known now.

    `size_bytes`: the length of its `.log` at the survey; if the length changed, all of this is
    void. `gone`: missing offsets that lie outside the log of every assigned replica, none of them
    `doubtful`. `held`: offsets of the held segments that were searched too. `why`: each replica's
    answer. `asked_from` and `asked_below` (exclusive) bound the step: nothing outside them was
    requested from a replica, so nothing there is missing for good.
    """

    base_offset: int
    next_base_offset: int
    size_bytes: int
    survey: Survey
    fetched: tuple[Run, ...] = ()
    gone: tuple[Offsets, ...] = ()
    aborts_fetched: tuple[int, ...] = ()
    why: str = ""
    head: bool = False
    held: tuple[Offsets, ...] = ()
    asked_from: int = 0
    asked_below: int = OFFSET_MAX

    @property
    def goes_on(self) -> bool:
        """True if a further step has to request the rest."""
        return self.asked_below < self.next_base_offset

    @property
    def missing(self) -> tuple[Offsets, ...]:
        """Offsets of this step that are neither in this replica nor fetched."""
        return within(self.holes, self.asked_from, self.asked_below - 1)

    @property
    def holes(self) -> tuple[Offsets, ...]:
        """Offsets neither in this replica nor fetched."""
        filled = ((each.first, each.last) for each in self.survey.thinned if self._is_filled(each))
        return without(
            self.survey.missing, (*((run.first, run.last) for run in self.fetched), *filled)
        )

    def _is_filled(self, hole: ThinnedHole) -> bool:
        """True if the fetched batches are exactly the damaged ones, by base offsets and sizes; the
        other offsets are then gaps that the cleaner left. A replica cleaned at a different time has
        different batches: then this is unknown, and False.
        """
        runs = self.survey.runs
        begin = max(
            (run.position + run.size_bytes for run in runs if run.last < hole.first), default=0
        )
        end = min((run.position for run in runs if run.first > hole.last), default=self.size_bytes)
        fetched = [run for run in self.fetched if hole.first <= run.first and run.last <= hole.last]
        return end - begin == sum(run.size_bytes for run in fetched) and all(
            any(run.first <= base <= run.last for run in fetched) for base in hole.bases
        )

    @property
    def is_sound(self) -> bool:
        """True if the file consists of good batches of its own offsets, from first to last byte."""
        held = sum(run.size_bytes for run in self.survey.runs)
        return not self.survey.missing and held == self.size_bytes

    def aborts_within(self, stretch: Stretch) -> bool:
        """True if an aborted transaction ends in the stretch."""
        aborts = (*self.survey.aborts, *self.aborts_fetched)
        return any(stretch.first <= offset <= stretch.last for offset in aborts)

    @property
    def doubtful(self) -> tuple[Offsets, ...]:
        """Missing offsets that files of this machine may have."""
        may_have = (*self.survey.doubtful, *self.held)
        return without(self.missing, without(self.missing, may_have))

    @property
    def _reason(self) -> str:
        if not self.doubtful:
            return self.why
        return (
            f"{self.why}; files here may have {ranges_text(self.doubtful)}, in batches that can't "
            "be read or that nothing beside them bears out"
        )

    @property
    def text(self) -> str:
        if not self.missing and self.goes_on:
            return (
                f"segment {self.base_offset} is there again up to offset {self.asked_below - 1}; "
                "the rest is fetched once that is copied"
            )
        if not self.missing:
            return f"all of segment {self.base_offset} is there again"
        if self.head:
            return (
                f"files at the head of this replica's log are gone, with "
                f"{ranges_text(self.missing)}, though the log starts at or below them: "
                f"{self._reason}; "
                "`strandline partitions skip` gives them up"
            )
        return (
            f"segment {self.base_offset} to {self.next_base_offset - 1} of this replica "
            f"({segment_file_name(self.base_offset, LOG_SUFFIX)}) has no good batch of "
            f"{ranges_text(self.missing)}: {self._reason}; "
            "`strandline partitions skip` gives them up, "
            "`strandline partitions allow-gaps` says that a compaction, a mirror or "
            "a restore left the gaps"
        )

    def with_fetched(self, runs: Iterable[Run], aborts: Iterable[int]) -> Damage:
        joined = tuple(sorted((*self.fetched, *runs), key=lambda run: run.first))
        return replace(self, fetched=joined, aborts_fetched=(*self.aborts_fetched, *aborts))


def without(ranges: Iterable[Offsets], taken: Iterable[Offsets]) -> tuple[Offsets, ...]:
    """`ranges` without every range of `taken`; ascending."""
    left = list(ranges)
    for start, end in taken:
        left = [
            part
            for first, last in left
            for part in ((first, min(last, start - 1)), (max(first, end + 1), last))
            if part[0] <= part[1]
        ]
    return tuple(sorted(left))


def within(ranges: Iterable[Offsets], first: int, last: int) -> tuple[Offsets, ...]:
    """The parts of `ranges` in `first` to `last` (inclusive)."""
    return without(ranges, ((0, first - 1), (last + 1, OFFSET_MAX)))


@dataclass(frozen=True, slots=True)
class LoseRange:
    """Offsets to record as lost; `last` is inclusive."""

    first: int
    last: int


def next_stretch(
    damage: Damage, next_offset: int, lost: Sequence[LostOffsets]
) -> Stretch | LoseRange | None:
    """The next part of the segment to copy, or to record as lost; None: request missing offsets
    from the replicas, of this step or of the next.

    Even the first part waits until every missing offset is fetched or lost for good: a segment
    copied as a whole is one object, with the producers' state at its end.
    """
    given_up = (*damage.gone, *((each.start, each.end) for each in lost))
    at = max(next_offset, damage.base_offset)
    if without(damage.missing, given_up) or not damage.asked_from <= at < damage.asked_below:
        return None
    for first, last in damage.missing:
        if first <= at <= last:
            return LoseRange(at, last)
    (whole,) = (each for each in _good_parts(damage) if each[0] <= at <= each[1])
    return next(each for each in _stretches(damage, *whole) if each.last >= at)


def next_fill(
    damage: Damage, next_offset: int, lost: Sequence[LostOffsets], first_known: int
) -> Stretch | None:
    """The next part of the segment to copy into a lost range; None: the good part that begins at or
    below `next_offset` is in the tier. Offsets below `first_known` are not needed.

    Unlike `next_stretch` it waits for nothing: the missing offsets are recorded as lost already.
    """
    for part in _good_parts(damage):
        for each in _stretches(damage, *part):
            if each.first <= next_offset and any(
                max(each.first, first_known, range_.start) <= min(each.last, range_.end)
                for range_ in lost
            ):
                return each
    return None


def _good_parts(damage: Damage) -> tuple[Offsets, ...]:
    """Offsets between holes, up to the end of this step."""
    last = min(damage.next_base_offset, damage.asked_below) - 1
    return without(((damage.base_offset, last),), damage.holes)


def _stretches(damage: Damage, first: int, last: int) -> Iterator[Stretch]:
    """The offsets as stretches, as few as the largest segment size allows. A run is never too
    large: it comes from one file of a broker, or from one fetch response.
    """
    runs = sorted((*damage.survey.runs, *damage.fetched), key=lambda run: run.first)
    # DeleteRecords may put log start inside a batch, which is copied whole.
    first = min((run.first for run in runs if run.first < first <= run.last), default=first)
    taken: list[Run] = []
    size_bytes = 0
    for run in (run for run in runs if first <= run.first <= last):
        if taken and size_bytes + run.size_bytes > STRETCH_BYTES_MAX:
            yield Stretch(first, run.first - 1, tuple(taken))
            first, taken, size_bytes = run.first, [], 0
        taken.append(run)
        size_bytes += run.size_bytes
    yield Stretch(first, last, tuple(taken))
