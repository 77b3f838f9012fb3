"""The walk by which transactions are decided, held against what a whole log says of them."""

from __future__ import annotations

import random

import pytest

from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane.transaction_walk import (
    NOTHING_UNDECIDED,
    SegmentTransactions,
    TransactionWalk,
    Undecided,
)

SEGMENT_OFFSETS = 8
SEGMENTS = 6


class MadeLog:
    """A log of events by chance: (producer, "data" | "commit" | "abort") at each offset."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.events: list[tuple[int, str]] = []
        self.first_of: list[int] = []  # where the transaction of each offset began
        open_from: dict[int, int] = {}
        for offset in range(SEGMENTS * SEGMENT_OFFSETS):
            producer = chance.randrange(3)
            kind = chance.choice(("data", "data", "commit", "abort"))
            if producer not in open_from:
                kind = "data"
                open_from[producer] = offset
            self.events.append((producer, kind))
            self.first_of.append(open_from[producer])
            if kind != "data":
                del open_from[producer]

    def fate(self, offset: int) -> str:
        """ "commit", "abort", or "open" of a record."""
        marker = self.marker_of(offset)
        return "open" if marker is None else self.events[marker][1]

    def marker_of(self, offset: int) -> int | None:
        """Where its transaction ends."""
        ends = ((self.events[offset][0], "commit"), (self.events[offset][0], "abort"))
        return next((at for at in range(offset, len(self.events)) if self.events[at] in ends), None)

    def open_at(self, offset: int) -> frozenset[OpenTransaction]:
        """As a producer snapshot at this offset has it."""
        latest = {self.events[at][0]: at for at in range(offset)}
        return frozenset(
            OpenTransaction(producer, self.first_of[at])
            for producer, at in latest.items()
            if self.events[at][1] == "data"
        )

    def segment(self, number: int) -> SegmentTransactions:
        """What its indexes say."""
        start = number * SEGMENT_OFFSETS
        aborted = []
        for offset in range(start, start + SEGMENT_OFFSETS):
            producer, kind = self.events[offset]
            if kind == "abort":
                opened = [each.first_offset for each in self.open_at(offset + 1)]
                stable = min(opened, default=offset + 1)
                aborted.append(AbortedTransaction(producer, self.first_of[offset], offset, stable))
        return SegmentTransactions(
            tuple(aborted), self.open_at(start), self.open_at(start + SEGMENT_OFFSETS)
        )


def judged(walk: TransactionWalk, producer: int, offset: int) -> str:
    """What a reader does with a record."""
    for entry in walk.aborted:
        if entry.producer_id == producer and entry.first_offset <= offset <= entry.last_offset:
            return "abort"
    if walk.undecided.has(producer, offset):
        return "undecided"
    assert walk.open is not None
    if any(each.producer_id == producer and each.first_offset <= offset for each in walk.open):
        return "open"
    return "commit"


@pytest.mark.parametrize("with_hole", [False, True])
def test_a_record_is_committed_or_aborted_only_if_it_was(with_hole: bool) -> None:
    undecided = decided = 0
    for seed in range(150):
        made = MadeLog(seed)
        hole = random.Random(seed).randrange(1, SEGMENTS - 1) if with_hole else SEGMENTS
        lost = range(hole * SEGMENT_OFFSETS, (hole + 1) * SEGMENT_OFFSETS)
        for number in (n for n in range(SEGMENTS) if n != hole):
            start = number * SEGMENT_OFFSETS
            walk = TransactionWalk(start, start + SEGMENT_OFFSETS - 1)
            for behind in range(number, SEGMENTS):
                if behind != hole and not walk.decided:
                    over = number < hole == behind - 1
                    walk.take(made.segment(behind), behind_hole=over)
            for offset in range(start, start + SEGMENT_OFFSETS):
                producer, kind = made.events[offset]
                if kind != "data":
                    continue
                fate, found = made.fate(offset), judged(walk, producer, offset)
                wanted = "undecided" if made.marker_of(offset) in lost else fate
                assert found == wanted, (seed, number, offset)
                undecided += found == "undecided"
                decided += found in ("commit", "abort")
    assert decided > 1_000
    assert (undecided > 50) is with_hole


def test_what_is_not_known_to_be_open_before_a_hole_is_undecided_but_for_what_is_proven() -> None:
    walk = TransactionWalk(0, 9)
    walk.take(SegmentTransactions(()))
    proven = OpenTransaction(1, 4)
    walk.take(SegmentTransactions((), frozenset({proven}), frozenset()), behind_hole=True)
    assert walk.decided
    assert not walk.undecided.has(1, 4)
    assert walk.undecided.has(1, 3)
    assert walk.undecided.has(2, 4)


def test_an_abort_listed_behind_a_hole_proves_where_its_transaction_began() -> None:
    walk = TransactionWalk(0, 9)
    walk.take(SegmentTransactions((), open_at_end=frozenset({OpenTransaction(1, 4)})))
    walk.take(SegmentTransactions((AbortedTransaction(1, 4, 30, 31),)), behind_hole=True)
    assert [entry.last_offset for entry in walk.aborted] == [30]
    assert (walk.decided, walk.undecided) == (True, NOTHING_UNDECIDED)


def test_nothing_undecided_is_false() -> None:
    assert not NOTHING_UNDECIDED
    assert Undecided(frozenset({OpenTransaction(1, 0)}))
    assert Undecided(all_but=frozenset())
