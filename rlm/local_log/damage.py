"""The damage of a sealed segment of this replica, and the parts of it that can be copied. Pure.

A survey of a damaged segment gives its good batches as runs; the offsets between them are missing.
Runs fetched from other replicas close the holes, and the segment is copied whole. Offsets that no
assigned replica has, or that an admin gave up, become a lost range; then each stretch between lost
ranges is copied by itself, under its own first offset.
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
    ABORT markers. `max_timestamp_ms`: of all batches, -1 without any. `thinned`: holes that
    `missing` has too, except below the log start. `doubtful`: offsets that good batches claim whose
    place nothing bears out, and what was not looked at.
    """

    runs: tuple[Run, ...]
    missing: tuple[Offsets, ...]
    aborts: tuple[int, ...]
    max_timestamp_ms: int
    thinned: tuple[ThinnedHole, ...] = ()
    doubtful: tuple[Offsets, ...] = ()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets that can be copied as one: `first` to `last` (inclusive), of runs that join."""

    first: int
    last: int
    runs: tuple[Run, ...]

    @property
    def size_bytes(self) -> int:
        return sum(run.size_bytes for run in self.runs)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged segment [base, next base) as known now.

    `size_bytes`: the length of its `.log` at the survey; with another length nothing here counts.
    `gone`: missing offsets that every assigned replica answered not to have. `held_doubtful`: as
    `doubtful` of the survey, of held segments.
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
    held_doubtful: tuple[Offsets, ...] = ()

    @property
    def missing(self) -> tuple[Offsets, ...]:
        """Offsets neither in this replica nor fetched."""
        filled = ((each.first, each.last) for each in self.survey.thinned if self._is_filled(each))
        return without(
            self.survey.missing, (*((run.first, run.last) for run in self.fetched), *filled)
        )

    def _is_filled(self, hole: ThinnedHole) -> bool:
        """True if the fetched batches are exactly the damaged ones, by their bases and bytes; the
        other offsets are then gaps of the cleaner. A replica cleaned at another time has others:
        that is unknown.
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
        """True if the file is good batches of its own offsets from its first byte to its last."""
        held = sum(run.size_bytes for run in self.survey.runs)
        return not self.survey.missing and held == self.size_bytes

    def aborts_within(self, stretch: Stretch) -> bool:
        """True if an aborted transaction ends in the stretch."""
        aborts = (*self.survey.aborts, *self.aborts_fetched)
        return any(stretch.first <= offset <= stretch.last for offset in aborts)

    @property
    def doubtful(self) -> tuple[Offsets, ...]:
        """Missing offsets that may be here."""
        claimed = (*self.survey.doubtful, *self.held_doubtful)
        return without(self.missing, without(self.missing, claimed))

    @property
    def _reason(self) -> str:
        if not self.doubtful:
            return self.why
        return (
            f"{self.why}; batches here claim {ranges_text(self.doubtful)}, but nothing beside them "
            "bears that out"
        )

    @property
    def text(self) -> str:
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


@dataclass(frozen=True, slots=True)
class LoseRange:
    """Offsets to record as lost; `last` is inclusive."""

    first: int
    last: int


def next_stretch(
    damage: Damage, next_offset: int, lost: Sequence[LostOffsets]
) -> Stretch | LoseRange | None:
    """The next part of the segment to copy, or to record as lost; None: wait for missing offsets.

    It waits before its first part is copied, unless all missing offsets are lost for good: copied
    whole it is one object, with the producers' state at its end.
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
    """The next part of the segment to copy into a lost range; None: the good part that begins at or
    below `next_offset` is in the tier. Nothing is missed below `first_known`.

    Unlike `next_stretch` it waits for nothing: the missing offsets are lost already.
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
    # DeleteRecords may put log start inside a batch, which is copied whole.
    first = min((run.first for run in runs if run.first < first <= run.last), default=first)
    return Stretch(first, last, tuple(run for run in runs if first <= run.first <= last))
