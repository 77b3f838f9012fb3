"""What a sealed segment of this replica lacks, and which parts of it can be copied. Pure.

A segment that was found damaged is surveyed: its good batches are runs, the offsets between them
are missing. Runs fetched from other replicas close the holes, and the segment is copied as a whole.
What no assigned replica has any more, or what an admin gave up, is a lost range; then each stretch
between such ranges is copied by itself, under its own first offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats.log_names import LOG_SUFFIX, segment_file_name
from rlm.local_log.gap_rule import Offsets, ranges_text
from rlmm.partition_state import LostOffsets


@dataclass(frozen=True, slots=True)
class Run:
    """Good batches one behind another, `first` to `last` (inclusive), as they lie in a file."""

    first: int
    last: int
    path: Path
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ThinnedHole:
    """Offsets `first` to `last` (inclusive) in which there may be legal gaps beside what is
    damaged: batches that begin at `bases`, as their headers say.
    """

    first: int
    last: int
    bases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """A segment's own runs, ascending, and what is between them. `aborts` are the
    offsets of markers of aborted transactions. `max_timestamp_ms` of all batches, -1 without any.
    `thinned` are holes of which `missing` has what is not below the log start.
    """

    runs: tuple[Run, ...]
    missing: tuple[Offsets, ...]
    aborts: tuple[int, ...]
    max_timestamp_ms: int
    thinned: tuple[ThinnedHole, ...] = ()


@dataclass(frozen=True, slots=True)
class Stretch:
    """What can be copied as one: `first` to `last` (inclusive), made of runs that join."""

    first: int
    last: int
    runs: tuple[Run, ...]

    @property
    def size_bytes(self) -> int:
        """Of its batches."""
        return sum(run.size_bytes for run in self.runs)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged segment [base, next base) as it is known now.

    `size_bytes` is the length of its `.log` at the survey: with another one nothing of this counts.
    `gone` are missing offsets that every assigned replica answered not to have.
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

    @property
    def missing(self) -> tuple[Offsets, ...]:
        """What neither this replica has, nor was fetched."""
        filled = ((each.first, each.last) for each in self.survey.thinned if self._is_filled(each))
        return without(
            self.survey.missing, (*((run.first, run.last) for run in self.fetched), *filled)
        )

    def _is_filled(self, hole: ThinnedHole) -> bool:
        """Whether what was fetched for it is what is damaged: no less, no other batches, as many
        bytes. The rest of its offsets are gaps that the cleaner left. A replica that was cleaned at
        another time has others, and then that can't be told.
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
        """The file is good batches of its own offsets from its first byte to its last."""
        held = sum(run.size_bytes for run in self.survey.runs)
        return not self.survey.missing and held == self.size_bytes

    def aborts_within(self, stretch: Stretch) -> bool:
        """Whether a transaction that was aborted ends in the stretch."""
        aborts = (*self.survey.aborts, *self.aborts_fetched)
        return any(stretch.first <= offset <= stretch.last for offset in aborts)

    @property
    def text(self) -> str:
        """For the status."""
        if not self.missing:
            return f"all of segment {self.base_offset} is there again"
        if self.head:
            return (
                f"files at the head of this replica's log are gone, with "
                f"{ranges_text(self.missing)}, though the log starts at or below them: {self.why}; "
                "`strandline partitions skip` gives them up"
            )
        return (
            f"segment {self.base_offset} to {self.next_base_offset - 1} of this replica "
            f"({segment_file_name(self.base_offset, LOG_SUFFIX)}) has no good batch of "
            f"{ranges_text(self.missing)}: {self.why}; `strandline partitions skip` gives them up, "
            "`strandline partitions allow-gaps` says that a compaction, a mirror or "
            "a restore left the gaps"
        )

    def with_fetched(self, runs: Iterable[Run], aborts: Iterable[int]) -> Damage:
        """With more of it."""
        joined = tuple(sorted((*self.fetched, *runs), key=lambda run: run.first))
        return replace(self, fetched=joined, aborts_fetched=(*self.aborts_fetched, *aborts))


def without(ranges: Iterable[Offsets], taken: Iterable[Offsets]) -> tuple[Offsets, ...]:
    """`ranges` less every range of `taken`; ascending."""
    left = list(ranges)
    for start, end in taken:
        left = [
            part
            for first, last in left
            for part in ((first, min(last, start - 1)), (max(first, end + 1), last))
            if part[0] <= part[1]
        ]
    return tuple(sorted(left))


@dataclass(frozen=True, slots=True)
class LoseRange:
    """Nobody has these any more; `last` is inclusive."""

    first: int
    last: int


def next_stretch(
    damage: Damage, next_offset: int, lost: Sequence[LostOffsets]
) -> Stretch | LoseRange | None:
    """What of the segment is copied, or recorded, next; None: it waits for what is missing.

    It waits before anything of it is copied, unless all that is missing is lost for good: a segment
    that comes whole is one object, with the producers' state at its end.
    """
    given_up = (*damage.gone, *((each.start, each.end) for each in lost))
    if without(damage.missing, given_up):
        return None
    holes = damage.missing
    at = max(next_offset, damage.base_offset)
    for first, last in holes:
        if first <= at <= last:
            return LoseRange(at, last)
    before = [last + 1 for _, last in holes if last < at]
    first = max(before, default=damage.base_offset)
    end = min((hole for hole, _ in holes if hole > at), default=damage.next_base_offset) - 1
    return _stretch(damage, first, end)


def next_fill(
    damage: Damage, next_offset: int, lost: Sequence[LostOffsets], first_known: int
) -> Stretch | None:
    """What of the segment is copied next for the sake of a lost range; None: all that is good in it
    is in the tier, as far as it begins at or below `next_offset`. Below `first_known` nothing is
    missed.

    Nothing is waited for, unlike in `next_stretch`: what is missing is lost already.
    """
    whole = (damage.base_offset, damage.next_base_offset - 1)
    for first, last in without((whole,), damage.missing):
        if first <= next_offset and any(
            max(first, first_known, each.start) <= min(last, each.end) for each in lost
        ):
            return _stretch(damage, first, last)
    return None


def _stretch(damage: Damage, first: int, last: int) -> Stretch:
    runs = sorted((*damage.survey.runs, *damage.fetched), key=lambda run: run.first)
    # A log start lies inside a batch where DeleteRecords put it: that batch is copied whole.
    first = min((run.first for run in runs if run.first < first <= run.last), default=first)
    return Stretch(first, last, tuple(run for run in runs if first <= run.first <= last))
