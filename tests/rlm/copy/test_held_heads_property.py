"""Held heads against histories whose truth is known: leaders that lose records, claims that come
late or never, heads that local retention cut, and segments held on any replica.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs, epoch_for_offset
from rlm.copy.held_heads import HeadFacts, with_held_heads
from rlm.copy.tiered_head import tiered_head
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalSegment
from rlm.reconcile.lost_claims import with_lost_claims
from rlmm.lineage import merge, within_lineage
from rlmm.rows.coverage import EpochRange, ranges_in_lineage
from rlmm.segment import RemoteLogSegmentMetadata
from tests.rlm.copy.test_tiered_head import row
from tests.rlm.planner_facts import PARTITION

REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """An election and what follows it. `leader` writes `records`, those in `follow` (a bit each)
    take over its log. `held`: (replica, base, size) of segments held then. The leader claims unless
    `cut` is None, with a checkpoint from there on, knowing the units of `known` (a bit each), or
    of them those that share no epoch with that. `copied`: segments that it copies under that claim.
    Of segments base and size are given, the base counted back from the log's end.
    """

    leader: int
    records: int
    follow: int
    held: list[tuple[int, int, int]]
    cut: int | None
    known: int
    unproven: bool
    copied: list[tuple[int, int]]


_REPLICA = st.integers(0, REPLICAS - 1)
_BACK, _SIZE = st.integers(0, 15), st.integers(1, 6)
STEPS = st.lists(
    st.builds(
        Step,
        leader=_REPLICA,
        records=st.integers(1, 3),
        follow=st.integers(0, 2**REPLICAS - 1),
        held=st.lists(st.tuples(_REPLICA, _BACK, _SIZE), max_size=4),
        cut=st.none() | st.integers(0, 6),
        known=st.just(-1) | st.integers(0, 2**32 - 1),
        unproven=st.booleans(),
        copied=st.lists(st.tuples(_BACK, _SIZE), max_size=4),
    ),
    min_size=4,
    max_size=12,
)


def alone(leader: int, records: int, **more: Any) -> Step:
    rest = {"follow": 0, "held": [], "cut": None, "known": 0, "unproven": False, "copied": []}
    return Step(leader, records, **{**rest, **more})


TAKEN = [
    *(alone(0, records) for records in (1, 2, 1)),
    alone(0, 1, cut=4, copied=[(2, 1)]),
    alone(0, 1),
    alone(1, 3, follow=1),
    alone(0, 2, held=[(0, 2, 1)], cut=0),
    alone(0, 1, cut=0, known=-1),
]
"""Of two branches, and what is held moved an offset that the tier served."""


@dataclass(slots=True)
class History:
    """`logs` have the epoch of each offset of a replica, `rows` the parts of finished segments."""

    logs: list[list[int]] = field(default_factory=lambda: [[] for _ in range(REPLICAS)])
    lineage: Epochs = ()
    rows: list[EpochRange] = field(default_factory=list)
    copies: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)

    def play(self, steps: list[Step]) -> None:
        for epoch, step in enumerate(steps):
            log = self.logs[step.leader]
            elected_at = len(log)
            log += [epoch] * step.records
            for other in range(REPLICAS):
                if step.follow >> other & 1:
                    self.logs[other] = list(log)
            self.units += [
                held(self.logs[replica], *span)
                for replica, *raw in step.held
                if (span := _span(self.logs[replica], *raw))
            ]
            if step.cut is not None:
                self.claim(log, (epoch, elected_at), step)

    def claim(self, log: list[int], elected: tuple[int, int], step: Step) -> None:
        """Claim with what is held, and hold that against the same claim without it."""
        own = epochs_within(log, max(len(log) - (step.cut or 0), 0), len(log))
        if not own or own[-1].epoch != elected[0]:
            own = (*own, EpochEntry(*elected))
        named = {epoch for epoch, _ in own}
        known = [
            unit
            for at, unit in enumerate(self.units)
            if step.known >> at & 1 and not (step.unproven and named & _epochs_of(unit))
        ]
        proven = with_lost_claims(own, tiered_head(own, self.lineage, self.listed))
        facts = HeadFacts(proven, proven, self.lineage, 0, self.serves, self.tiered)
        told = with_held_heads(facts, known)
        try:
            without = merge(self.lineage, proven, leader_epoch=elected[0], higher_epoch=True).epochs
        except InvalidRequest:
            return
        merged = merge(self.lineage, told, leader_epoch=elected[0], higher_epoch=True).epochs
        before, after = self.served(without), self.served(merged)
        right = {(at, epoch) for at, epoch in enumerate(log)}
        assert before & right <= after
        if not any(named & _epochs_of(unit) for unit in known):
            assert before <= after
        for unit in known:
            if not is_within(unit, merged) or is_within(unit, without):
                continue
            for at in range(unit.base_offset, unit.next_base_offset):
                epoch = epoch_for_offset(unit.leader_epochs, at)
                assert log[at : at + 1] == [epoch] or (at, *log[at : at + 1]) not in before
        self.lineage = merged
        for base, end in filter(None, (_span(log, *raw) for raw in step.copied)):
            inside = epochs_within(log, base, end)
            if within_lineage(base, end - 1, inside, merged, None):
                self.rows += _parts(inside, end)
                self.copies.append(row(end - 1, *inside))

    def listed(self, epoch: int) -> list[RemoteLogSegmentMetadata]:
        """The copies with an epoch, by their first offset in it."""
        having = [each for each in self.copies if epoch in dict(each.leader_epochs)]
        return sorted(having, key=lambda each: dict(each.leader_epochs)[epoch])

    def tiered(self, entry: EpochEntry) -> Epochs:
        return tiered_head((entry,), self.lineage, self.listed)

    def serves(self, lineage: Epochs, first: int, last: int) -> bool:
        return any(
            start <= last and first <= end for start, end in ranges_in_lineage(lineage, self.rows)
        )

    def served(self, lineage: Epochs) -> set[tuple[int, int]]:
        """(offset, epoch) of all that readers get."""
        return {
            (at, part.epoch)
            for part in self.rows
            for start, end in ranges_in_lineage(lineage, [part])
            for at in range(start, end + 1)
        }


def held(log: list[int], base: int, next_base: int) -> Unit:
    inside = epochs_within(log, base, next_base)
    followed_by = log[next_base] if next_base < len(log) else inside[-1].epoch
    segment = LocalSegment(base, Path(f"{base}.log"), 100, next_base)
    return Unit(PARTITION, segment, inside, base, alone=True, followed_by=followed_by)


def is_within(unit: Unit, lineage: Epochs) -> bool:
    end = unit.next_base_offset - 1
    return within_lineage(unit.base_offset, end, unit.leader_epochs, lineage, None)


def _span(log: list[int], below_end: int, size: int) -> tuple[int, int] | None:
    """The base and the end of a segment, counted back from the log's end."""
    base = len(log) - below_end - 1
    return (base, min(base + size, len(log))) if base >= 0 else None


def epochs_within(log: list[int], start: int, end: int) -> Epochs:
    """The entries of a log from `start` to `end` (exclusive)."""
    runs = groupby(range(start, min(end, len(log))), key=log.__getitem__)
    return tuple(EpochEntry(epoch, next(offsets)) for epoch, offsets in runs)


def _parts(epochs: Epochs, end: int) -> list[EpochRange]:
    ends = [*(entry.start_offset for entry in epochs[1:]), end]
    return [EpochRange(*entry, end - 1) for entry, end in zip(epochs, ends, strict=True)]


def _epochs_of(unit: Unit) -> set[int]:
    return {unit.followed_by, *(epoch for epoch, _ in unit.leader_epochs)}


@settings(max_examples=1_000, deadline=None)
@given(STEPS)
@example(TAKEN)
def test_no_held_segment_takes_from_the_tier_what_is_right_or_may_be(steps: list[Step]) -> None:
    """Proof takes what is wrong alone, and where nothing is proven, nothing served goes."""
    History().play(steps)
