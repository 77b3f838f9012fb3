"""Epochs that a late claim did not know, by what other nodes have held since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlm.copy.held_heads import HeadFacts, with_held_heads
from rlm.copy.tiered_head import tiered_head
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalSegment
from rlmm.rows.coverage import EpochRange, ranges_in_lineage
from rlmm.segment import RemoteLogSegmentMetadata
from tests.rlm.copy.test_tiered_head import row
from tests.rlm.planner_facts import PARTITION, epochs

Entries = tuple[tuple[int, int], ...]
Served = tuple[int, int, int]
"""Epoch, first and last offset of a finished segment's part, both inclusive."""
CHECKPOINT = ((8, 900), (9, 1_000))


def unit(base: int, next_base: int, *entries: tuple[int, int], followed_by: int) -> Unit:
    held = LocalSegment(base, Path(f"{base}.log"), 100, next_base)
    return Unit(PARTITION, held, epochs(*entries), base, alone=True, followed_by=followed_by)


def claimed(
    recorded: Entries,
    *units: Unit,
    checkpoint: Entries = CHECKPOINT,
    proven: Entries | None = None,
    log_start: int = 0,
    served: Sequence[Served] = (),
    rows: Sequence[RemoteLogSegmentMetadata] = (),
) -> Entries:
    def serves(lineage: Epochs, first: int, last: int) -> bool:
        return any(
            ranges_in_lineage(lineage, [EpochRange(epoch, max(start, first), min(end, last))])
            for epoch, start, end in served
        )

    def tiered(entry: EpochEntry) -> Epochs:
        def listed(epoch: int) -> list[RemoteLogSegmentMetadata]:
            return [each for each in rows if epoch in dict(each.leader_epochs)]

        return tiered_head((entry,), epochs(*recorded), listed)

    own = checkpoint if proven is None else proven
    facts = HeadFacts(
        epochs(*checkpoint), epochs(*own), epochs(*recorded), log_start, serves, tiered
    )
    return tuple((each.epoch, each.start_offset) for each in with_held_heads(facts, units))


def test_the_tier_tells_what_lies_below_a_held_segment() -> None:
    """A second unclean election brought the first history back, whose epochs 14 and 15 the one
    between had cut. Local retention has cut the checkpoint up to 393, and a segment is held.
    """
    recorded = ((13, 308), (16, 369))
    held = unit(381, 389, (15, 381), (17, 382), followed_by=17)
    rows = [row(372, (13, 365), (14, 369)), row(376, (14, 373), (15, 374)), row(380, (15, 377))]
    expected = ((13, 308), (14, 369), (15, 374), (17, 382))
    assert claimed(recorded, held, checkpoint=((17, 393),), rows=rows) == expected
    # A held segment below joins what the tier proved.
    below = unit(360, 369, (12, 360), (13, 365), followed_by=14)
    shown = claimed(((11, 300), (16, 369)), held, below, checkpoint=((17, 393),), rows=rows[1:])
    assert shown == ((11, 300), (12, 360), (13, 365), (14, 369), (15, 374), (17, 382))
    # A segment of a branch that does not lead to it proves nothing.
    other = [row(376, (12, 365), (14, 369))]
    assert claimed(recorded, held, checkpoint=((17, 393),), rows=other) == (
        (13, 308), (15, 381), (17, 382)
    )  # fmt: skip


AMID = ((5, 0), (6, 100), (7, 200), (8, 300))
"""Epoch 7 began at 150, which the claim at it did not know."""


@pytest.mark.parametrize(
    ("recorded", "units", "expected"),
    [
        # Segments up to where the recorded lineage goes on, from the top.
        (
            AMID,
            [
                unit(120, 160, (6, 120), (7, 150), followed_by=7),
                unit(160, 200, (7, 160), followed_by=7),
            ],
            ((5, 0), (6, 100), (7, 150), (8, 300), (9, 1_000)),
        ),
        # Others between them went: the epoch's log is one, across the gap too.
        (
            AMID,
            [unit(150, 170, (7, 150), followed_by=7)],
            ((5, 0), (6, 100), (7, 150), (8, 300), (9, 1_000)),
        ),
        # The epoch that followed is known, that of the unit is not; nor is where the other began.
        (
            ((5, 0), (8, 300)),
            [unit(150, 250, (6, 150), (7, 160), followed_by=8)],
            ((5, 0), (6, 150), (7, 160), (8, 250), (9, 1_000)),
        ),
        # What the tier has from an older leader there was cut off, as this shows.
        (
            ((5, 0), (6, 100), (8, 300)),
            [unit(150, 250, (5, 150), (7, 160), followed_by=7)],
            CHECKPOINT,
        ),
        (
            ((5, 0), (6, 100), (8, 300)),
            [unit(150, 250, (5, 150), (7, 160), followed_by=8)],
            ((5, 0), (7, 160), (8, 250), (9, 1_000)),
        ),
    ],
)
def test_held_segments_tell_where_epochs_of_the_recorded_lineage_begin(
    recorded: Entries, units: list[Unit], expected: Entries
) -> None:
    assert claimed(recorded, *units) == expected


@pytest.mark.parametrize(
    "held",
    [
        unit(200, 300, (7, 200), followed_by=8),  # it is known
        unit(150, 400, (7, 150), followed_by=7),  # it goes on where epoch 8 began
        unit(150, 200, (4, 150), followed_by=4),  # cut off: nothing of it is in the lineage
        unit(150, 350, (6, 150), (7, 160), followed_by=8),  # epoch 8 began below that
        unit(310, 350, (6, 310), followed_by=6),
    ],
)
def test_segments_of_another_history_and_known_ones_tell_nothing(held: Unit) -> None:
    assert claimed(AMID, held) == CHECKPOINT


CUT = ((7, 250), (8, 300))
"""DeleteRecords had cut the head of the checkpoint of the claim at epoch 7."""


def test_a_held_segment_tells_of_epochs_below_the_first_recorded_one() -> None:
    held = unit(150, 280, (6, 150), (7, 160), followed_by=7)
    expected = ((6, 150), (7, 160), (8, 300), (9, 1_000))
    assert claimed(CUT, held) == expected
    assert claimed(CUT, held, served=[(7, 160, 299)]) == expected
    assert claimed(CUT, held, served=[(7, 155, 299)]) == CHECKPOINT
    known = unit(160, 280, (7, 160), followed_by=7)
    assert claimed(CUT, known) == CHECKPOINT


MIXED = ((1, 0), (3, 7), (10, 9))
"""Of two branches: nobody claimed for epoch 2, which cut epoch 1, and the head of 3 was cut."""


@pytest.mark.parametrize(
    ("checkpoint", "units", "expected"),
    [
        (((22, 10),), [unit(0, 8, (1, 0), followed_by=10)], ((22, 10),)),
        (((22, 10),), [unit(0, 9, (1, 0), (10, 8), followed_by=10)], ((22, 10),)),
        (
            ((23, 15),),
            [unit(10, 15, (22, 10), followed_by=23), unit(0, 8, (1, 0), followed_by=10)],
            (*MIXED, (22, 10), (23, 15)),
        ),
        # The checkpoint has it, and so does a unit that joins the checkpoint.
        (((10, 9), (22, 10)), [unit(0, 8, (1, 0), followed_by=10)], ((1, 0), (10, 8), (22, 10))),
        (
            ((22, 10),),
            [unit(8, 10, (10, 8), followed_by=22), unit(0, 8, (1, 0), followed_by=10)],
            ((1, 0), (10, 8), (22, 10)),
        ),
    ],
)
def test_what_only_the_record_tells_takes_nothing_from_the_record(
    checkpoint: Entries, units: list[Unit], expected: Entries
) -> None:
    """Epoch 22 may have begun behind 3, and nobody claimed who knew that."""
    assert claimed(MIXED, *units, checkpoint=checkpoint) == expected


@pytest.mark.parametrize(
    ("served", "taken"),
    [
        ((1, 0, 8), False),
        ((1, 5, 6), False),
        ((1, 0, 4), True),  # all of that stays where it is
        ((3, 7, 8), True),
        ((2, 5, 6), True),  # of the unit's branch
    ],
)
def test_what_only_the_record_tells_takes_no_offset_that_the_tier_serves(
    served: Served, *, taken: bool
) -> None:
    """Epoch 2 was cut off, for all that is known, and the segment would be deleted for it."""
    held = unit(4, 6, (1, 4), (2, 5), followed_by=3)
    expected = ((1, 0), (2, 5), (3, 6), (10, 9), (22, 10)) if taken else ((22, 10),)
    assert claimed(MIXED, held, checkpoint=((22, 10),), served=[served]) == expected


def test_the_first_recorded_epoch_serves_downwards() -> None:
    held = unit(20, 60, (4, 20), followed_by=5)
    recorded = ((5, 100), (8, 300))
    told = ((4, 20), (5, 60), (8, 300), (9, 1_000))
    assert claimed(recorded, held) == told
    assert claimed(recorded, held, served=[(5, 60, 150)]) == told
    assert claimed(recorded, held, served=[(5, 50, 150)]) == CHECKPOINT
    assert claimed(recorded, held, served=[(5, 0, 19)], log_start=20) == told


def test_epochs_that_the_stores_told_prove_nothing() -> None:
    """What copies tell of lost claims is as mixed as any record."""
    told = ((10, 9), (22, 10))
    held = unit(0, 8, (1, 0), followed_by=10)
    assert claimed(MIXED, held, checkpoint=told, proven=((22, 10),)) == told
    assert claimed(MIXED, held, checkpoint=told) == ((1, 0), (10, 8), (22, 10))


@pytest.mark.parametrize(
    "held",
    [
        unit(39, 42, (10, 39), (28, 41), followed_by=28),  # a turned bit, say
        unit(39, 42, (10, 39), (19, 41), followed_by=28),
        unit(5, 9, (4, 5), (15, 8), followed_by=15),
        unit(39, 50, (4, 39), (15, 49), followed_by=15),  # epoch 10 had these
    ],
)
def test_no_unit_outvotes_the_brokers_checkpoint_behind_its_first_entry(held: Unit) -> None:
    """Retention cuts the head alone: what is behind it begins where it says."""
    checkpoint = ((10, 16), (15, 48), (28, 59))
    assert claimed(((4, 0),), held, checkpoint=checkpoint) == checkpoint


def test_a_unit_that_the_lineage_does_not_take_proves_no_epoch() -> None:
    """Of epoch 7 the record and what was held below epoch 8 contradict each other."""
    units = [
        unit(150, 300, (6, 150), (7, 160), followed_by=8),
        unit(0, 100, (4, 0), (6, 50), followed_by=7),
    ]
    recorded = ((4, 0), (5, 60), (7, 100))
    assert claimed(recorded, *units, checkpoint=((8, 300),)) == ((8, 300),)


def test_nothing_is_told_of_what_nobody_wants_or_where_nothing_is_recorded() -> None:
    held = unit(150, 200, (7, 150), followed_by=7)
    assert claimed(AMID, held, log_start=150) != CHECKPOINT
    assert claimed(AMID, held, log_start=151) == CHECKPOINT
    assert claimed((), held) == CHECKPOINT
    assert claimed(AMID, held, checkpoint=()) == ()
