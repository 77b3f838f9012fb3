"""What is held from local retention, what is let go, and what may be copied of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.copy.copy_plan import CopySegment, PlanFacts, plan
from rlm.local_log.hold_plan import (
    NOT_A_LOSS,
    HoldFacts,
    Release,
    Unit,
    over_budget,
    to_hold,
    unbroken,
    usable,
    why_let_go,
    with_heads,
)
from rlm.local_log.log_dir import LocalSegment
from rlmm.partition_state import LostOffsets
from tests.rlm.planner_facts import PARTITION, epochs, state


def segment(base: int, next_base: int | None, size: int = 100) -> LocalSegment:
    return LocalSegment(base, Path("log") / f"{base}.log", size, next_base)


def live(*bases: int) -> tuple[LocalSegment, ...]:
    """The broker's own segments; the last one is active."""
    return tuple(segment(*each) for each in zip(bases, (*bases[1:], None), strict=True))


def unit(
    base: int,
    next_base: int,
    *entries: tuple[int, int],
    followed_by: int | None = None,
    alone: bool = True,
) -> Unit:
    inside = epochs(*entries or ((0, base),))
    behind = inside[-1].epoch if followed_by is None else followed_by
    return Unit(PARTITION, segment(base, next_base), inside, base, alone, behind)


def facts(
    segments: tuple[LocalSegment, ...],
    *entries: tuple[int, int],
    committed: int = 1_000,
    next_offset: int = 0,
    lost: tuple[LostOffsets, ...] = (),
) -> HoldFacts:
    checkpoint = epochs(*entries or ((0, 0),))
    return HoldFacts(segments, checkpoint, committed, next_offset, lost, False, False)


def held_bases(planned: HoldFacts, *held: Unit) -> list[int]:
    return [each.base_offset for each in to_hold(planned, held)]


def test_sealed_committed_and_uncopied_segments_are_held_and_nothing_else() -> None:
    assert held_bases(facts(live(0, 10, 20, 30), committed=30)) == [0, 10, 20]
    assert held_bases(facts(live(0, 10, 20, 30), committed=25)) == [0, 10]
    assert held_bases(facts(live(0, 10, 20, 30), next_offset=10)) == [10, 20]
    assert held_bases(facts(live(0, 10, 20, 30), next_offset=11)) == [10, 20]
    assert held_bases(facts(live(0, 10, 20, 30)), unit(10, 20, alone=False)) == [0, 20]


def test_a_unit_that_the_broker_has_no_link_to_is_not_the_broker_s_file_whatever_its_borders() -> (
    None
):
    assert held_bases(facts(live(0, 10, 20)), unit(10, 20, alone=True)) == [0, 10]


def test_what_an_older_leader_copied_there_is_no_copy_of_it() -> None:
    """The claim that records the unclean election's cut may have to wait."""
    behind = replace(facts(live(0, 10, 20, 30), (0, 0), (5, 10)), next_offset=30)
    cut_off = replace(behind, lineage=epochs((0, 0)))
    assert held_bases(cut_off) == [10, 20]
    assert why_let_go(cut_off, unit(10, 20, (5, 10)), None) is None
    for recorded in (epochs((0, 0), (5, 10)), epochs((5, 20)), ()):
        copied = replace(behind, lineage=recorded)
        assert held_bases(copied) == []
        assert why_let_go(copied, unit(10, 20, (5, 10)), None) is Release.COPIED


@pytest.mark.parametrize("newest", [((1, 10),), ((1, 10), (3, 40))])
def test_a_leader_that_comes_back_gives_up_nothing_of_its_history_before_it_claims_or_follows(
    newest: tuple[tuple[int, int], ...],
) -> None:
    """Another one led and claimed meanwhile, and a second unclean election may end that."""
    back = replace(
        facts(live(10, 20, 40), *newest, next_offset=40), lineage=epochs((0, 0), (2, 10))
    )
    assert held_bases(back) == [10, 20]
    assert why_let_go(back, unit(10, 20, (1, 10)), None) is None
    assert why_let_go(back, unit(0, 10, (0, 0)), None) is Release.COPIED
    followed = replace(back, checkpoint=epochs((0, 0), (2, 10)))
    assert held_bases(followed) == []
    assert why_let_go(followed, unit(10, 20, (1, 10)), None) is Release.DIVERGED


@pytest.mark.parametrize(
    ("next_offset", "lost", "log_start", "expected"),
    [
        (100, (), 0, None),
        # The claim's broker begins at 120: what is below is recorded as lost.
        (140, (LostOffsets(100, 119, "why"),), 0, None),
        (140, (LostOffsets(110, 119, "why"),), 0, None),
        # The tier has records of epoch 4 there.
        (140, (), 0, Release.DIVERGED),
        (140, (), 110, Release.DIVERGED),
        (140, (), 120, Release.BELOW_LOG_START),
    ],
)
def test_a_unit_that_a_claim_with_a_cut_head_passed_over_is_no_copy_of_what_is_recorded_there(
    next_offset: int, lost: tuple[LostOffsets, ...], log_start: int, expected: Release | None
) -> None:
    planned = replace(
        facts(live(120, 150), (6, 120), next_offset=next_offset, lost=lost),
        log_start_offset=log_start,
        lineage=epochs((4, 0), (6, 120)),
    )
    for inside in (((5, 100),), ((4, 100), (5, 110))):
        assert why_let_go(planned, unit(100, 120, *inside, followed_by=6), None) is expected
    assert Release.DIVERGED not in NOT_A_LOSS


def test_a_file_is_held_once_however_far_it_seems_to_reach_once_the_next_one_vanished() -> None:
    assert held_bases(facts(live(0, 20, 30)), unit(0, 10, alone=False), unit(10, 20)) == [20]
    cut = (segment(0, 20, size=60), *live(20, 30))
    assert held_bases(facts(cut), unit(0, 10, alone=False)) == [0, 20]


def test_a_lost_range_that_a_segment_cannot_fill_any_more_keeps_it_from_nothing() -> None:
    lost = (LostOffsets(12, 14, "why"),)
    planned = facts(live(0, 10, 20, 30), (0, 15), next_offset=30, lost=lost)
    assert held_bases(planned) == []
    assert why_let_go(planned, unit(10, 20, (0, 15)), None) is Release.COPIED
    assert why_let_go(planned, unit(10, 20, (0, 10)), None) is None


def test_what_delete_records_took_as_a_whole_is_not_held_since_nothing_tells_its_epochs() -> None:
    assert held_bases(facts(live(0, 10, 20, 30), (2, 15))) == [10, 20]
    assert held_bases(facts(live(0, 10, 20, 30), (2, 20))) == [20]
    assert to_hold(replace(facts(live(0, 10)), checkpoint=()), ()) == ()


def test_a_segment_with_offsets_that_are_recorded_as_lost_is_held_though_the_tier_is_past_it() -> (
    None
):
    lost = (LostOffsets(12, 14, "why"),)
    planned = facts(live(0, 10, 20, 30), next_offset=30, lost=lost)
    assert held_bases(planned) == [10]
    assert why_let_go(planned, unit(10, 20), None) is None


def test_nothing_is_held_of_what_is_deleted() -> None:
    planned = replace(facts(live(0, 10)), deleted=True)
    assert held_bases(planned) == []
    assert why_let_go(planned, unit(0, 10), None) is Release.PARTITION_DELETED


def test_nothing_more_is_held_of_a_topic_that_is_left_out_and_what_is_stays_for_now() -> None:
    planned = replace(facts(live(0, 10)), left_out=True)
    assert held_bases(planned) == []
    assert why_let_go(planned, unit(0, 10), None) is None
    assert why_let_go(replace(planned, next_offset=10), unit(0, 10), None) is Release.COPIED


def test_where_room_is_needed_what_is_left_out_goes_first() -> None:
    wanted, left_out = unit(0, 10), replace(unit(10, 20), wanted=False)
    for bytes_max, going in (
        (200, ()),
        (100, ((left_out, Release.NOT_TIERED),)),
        (0, ((left_out, Release.NOT_TIERED), (wanted, Release.BYTES_MAX))),
    ):
        assert over_budget((wanted, left_out), bytes_max=bytes_max, bytes_missing=0) == going


def test_where_room_is_needed_what_is_in_doubt_goes_before_what_can_be_copied() -> None:
    older, doubted = unit(0, 10), replace(unit(10, 20), doubt="nothing proves it")
    left_out = replace(unit(20, 30), wanted=False)
    going = over_budget((older, doubted, left_out), bytes_max=100, bytes_missing=0)
    assert going == ((left_out, Release.NOT_TIERED), (doubted, Release.BYTES_MAX))


def test_where_room_is_needed_the_smaller_or_older_of_two_for_the_same_offsets_goes_first() -> None:
    first, again = replace(unit(10, 20), modified_ns=1), replace(unit(10, 20), modified_ns=2)
    shorter = replace(again, segment=segment(10, 20, size=60))
    for held, going_first in (
        ((unit(0, 10), first, again), first),
        ((unit(0, 10), first, replace(again, alone=False)), first),
        ((unit(0, 10), first, shorter), shorter),
    ):
        going = over_budget(held, bytes_max=0, bytes_missing=0)
        assert going[:2] == ((going_first, Release.BYTES_MAX), (unit(0, 10), Release.BYTES_MAX))


def test_a_unit_goes_once_it_is_copied() -> None:
    assert why_let_go(facts(live(0, 10), next_offset=10), unit(0, 10), None) is Release.COPIED
    assert why_let_go(facts(live(0, 10), next_offset=9), unit(0, 10), None) is None
    never_copied = replace(facts(live(20, 30), next_offset=20), log_start_offset=20)
    assert why_let_go(never_copied, unit(0, 10), None) is Release.BELOW_LOG_START


CUT_OFF = [
    # An unclean leader wrote other records from offset 15 on; the log reaches past the unit.
    (live(0, 30), ((0, 0), (3, 15)), unit(10, 20, (0, 10))),
    # The live log begins behind the unit with an epoch below the unit's.
    (live(30, 40), ((1, 0),), unit(10, 20, (2, 10))),
    # The unit ends in an epoch that the live log does not have there.
    (live(0, 30), ((0, 0),), unit(10, 20, (0, 10), (1, 15))),
]


@pytest.mark.parametrize(("segments", "checkpoint", "held"), CUT_OFF)
def test_a_unit_that_the_live_log_and_the_recorded_lineage_contradict_goes(
    segments: tuple[LocalSegment, ...], checkpoint: tuple[tuple[int, int], ...], held: Unit
) -> None:
    found = replace(facts(segments, *checkpoint), lineage=epochs(*checkpoint))
    assert why_let_go(found, held, None) is Release.DIVERGED


@pytest.mark.parametrize("fits", [False, True])
@pytest.mark.parametrize(("segments", "checkpoint", "held"), CUT_OFF)
def test_a_checkpoint_alone_gives_up_no_unit(
    segments: tuple[LocalSegment, ...],
    checkpoint: tuple[tuple[int, int], ...],
    held: Unit,
    *,
    fits: bool,
) -> None:
    """It has no checksum, and nothing was claimed since."""
    found = replace(facts(segments, *checkpoint), lineage=held.leader_epochs if fits else ())
    assert why_let_go(found, held, None) is None


@pytest.mark.parametrize(
    ("segments", "checkpoint", "held"),
    [
        # Nothing of it is in this log, which retention cut or which starts over.
        (live(0, 5), ((0, 0), (1, 3)), unit(10, 20, (0, 10))),
        (live(30, 40), ((4, 30),), unit(10, 20, (2, 10))),
    ],
)
def test_the_recorded_lineage_alone_gives_up_no_unit(
    segments: tuple[LocalSegment, ...], checkpoint: tuple[tuple[int, int], ...], held: Unit
) -> None:
    """Another unclean election may make it the partition's history again."""
    found = replace(facts(segments, *checkpoint), lineage=epochs((1, 0)))
    assert why_let_go(found, held, None) is None


@pytest.mark.parametrize(
    ("segments", "checkpoint"),
    [
        # A replica whose disk was replaced fetches from the beginning again: no word yet.
        (live(0), ((0, 0),)),
        (live(0, 5), ((0, 0),)),
        # Local retention cut the head of the checkpoint: it has no word about the unit's offsets.
        (live(20, 30), ((2, 20),)),
        (live(400, 500), ((7, 400),)),
        (live(10, 20, 30), ((2, 10),)),
        # Retention left no batch that bears out the checkpoint, which has no checksum.
        (live(20), ((1, 20),)),
    ],
)
def test_a_unit_stays_while_the_live_log_says_nothing_against_it(
    segments: tuple[LocalSegment, ...], checkpoint: tuple[tuple[int, int], ...]
) -> None:
    assert why_let_go(facts(segments, *checkpoint), unit(10, 20, (2, 10)), None) is None


IN_DOUBT = replace(unit(10, 20, (0, 10), (1, 15)), doubt="the broker wrote to it")
LEFT_OUT = replace(facts(live(0, 10, 20, 30)), left_out=True)
"""Nothing is held anew of a topic that is left out."""


@pytest.mark.parametrize(
    ("planned", "own", "expected"),
    [
        (facts(live(0, 10, 20, 30)), segment(10, 20), Release.CHANGED),
        (facts(live(0, 10)), segment(10, None), Release.CHANGED),
        (facts(live(10, 20), (2, 15)), segment(10, 20), Release.CHANGED),
        # The checkpoint's head goes before the files: nothing of this one is held anew.
        (facts(live(10, 20), (2, 20)), segment(10, 20), None),
        (facts((), (2, 15)), None, None),
        (replace(facts(live(0, 10)), checkpoint=()), segment(10, None), None),
        (LEFT_OUT, segment(10, 20), None),
        (replace(LEFT_OUT, next_offset=20), segment(10, 20), Release.COPIED),
        (replace(facts(live(0, 10)), deleted=True), None, Release.PARTITION_DELETED),
    ],
)
def test_a_unit_in_doubt_goes_while_the_broker_s_log_has_its_file(
    planned: HoldFacts, own: LocalSegment | None, expected: Release | None
) -> None:
    assert why_let_go(planned, IN_DOUBT, own) is expected


@pytest.mark.parametrize(
    ("entries", "recorded", "expected"),
    [
        (((2, 20),), ((0, 0), (2, 15)), Release.DIVERGED),
        (((2, 20),), ((2, 0),), Release.COPIED),
        (((0, 0), (2, 15)), ((0, 0), (2, 15)), Release.DIVERGED),
        # It may have records of epoch 2, which the next claim puts in the place of older ones.
        (((2, 20),), ((0, 0), (1, 15)), None),
        (((0, 0), (2, 15)), ((0, 0), (1, 15)), None),
        (((0, 0),), ((0, 0),), None),
    ],
)
def test_another_one_goes_once_the_tier_has_its_offsets_whatever_its_epochs_are(
    entries: tuple[tuple[int, int], ...],
    recorded: tuple[tuple[int, int], ...],
    expected: Release | None,
) -> None:
    planned = facts(live(20, 30), *entries, next_offset=30)
    planned = replace(planned, lineage=epochs(*recorded))
    assert why_let_go(planned, IN_DOUBT, None) is expected
    for unknown in (
        replace(planned, next_offset=19),
        replace(planned, lost_ranges=(LostOffsets(12, 14, "why"),)),
        replace(planned, segments=live(0)),
    ):
        assert why_let_go(unknown, IN_DOUBT, None) is None


def test_units_below_the_live_log_may_be_copied_in_order() -> None:
    units = (unit(20, 30), unit(0, 10), unit(40, 50))
    found = usable(units, live(30, 40, 50), epochs((0, 0)), ())
    assert [each.base_offset for each in found] == [0, 20]


def test_a_unit_with_a_higher_epoch_than_what_follows_it_is_not_copied() -> None:
    units = (unit(0, 10, (0, 0)), unit(10, 20, (4, 10)), unit(20, 30, (1, 20)))
    found = usable(units, live(30, 40), epochs((2, 30)), ())
    assert [each.base_offset for each in found] == [0, 20]


@pytest.mark.parametrize(
    "dead",
    [
        unit(471, 479, (110, 471)),
        unit(445, 460, (110, 445)),
        unit(452, 470, (132, 452)),
        unit(451, 460, (129, 451)),
        unit(430, 451, (133, 430)),
    ],
)
def test_a_unit_that_was_cut_off_hides_none_that_lies_in_the_lineage(dead: Unit) -> None:
    lineage = epochs((130, 440), (131, 450), (132, 453), (178, 564))
    good, checkpoint = unit(451, 453, (131, 451)), epochs((178, 570))
    found = usable((dead, good), live(570, 590), checkpoint, lineage)
    assert found == (good,)
    planned = PlanFacts(
        segments=(*(each.segment for each in found), *live(570, 590)),
        linked_count=1,
        checkpoint=with_heads(found, checkpoint),
        local_log_start_offset=570,
        last_stable_offset=600,
        state=replace(state(), next_offset=451, highest_copied=(450, 131), lineage=lineage),
        now_ms=0,
    )
    assert plan(planned) == CopySegment(451, 453, 100)


def test_a_unit_inside_another_one_does_not_hide_it() -> None:
    """A replica that came to another log directory has its borders elsewhere: both were held."""
    short, long = unit(34, 38, (1, 34)), unit(34, 43, (1, 34), (2, 38))
    lineage, checkpoint = epochs((1, 34), (2, 38), (4, 50)), epochs((4, 52))
    for units in ((short, long), (long, short)):
        found = usable(units, live(50, 60), checkpoint, lineage)
        assert found == (long,)
    planned = PlanFacts(
        segments=(long.segment, *live(50, 60)),
        linked_count=1,
        checkpoint=with_heads((long,), checkpoint),
        local_log_start_offset=52,
        last_stable_offset=60,
        state=replace(state(), next_offset=38, highest_copied=(37, 1), lineage=lineage),
        now_ms=0,
    )
    assert plan(planned) == CopySegment(34, 43, 100)


def test_units_that_overlap_each_other_and_the_live_log_are_copied_and_tell_its_epochs() -> None:
    units = (unit(10, 25, (0, 10), (1, 20)), unit(18, 45, (0, 18), (1, 20), (2, 40)))
    checkpoint = epochs((1, 36), (2, 40), (3, 60))
    found = usable(reversed(units), live(36, 50, 70), checkpoint, ())
    assert found == units
    assert with_heads(found, checkpoint) == epochs((0, 10), (1, 20), (2, 40), (3, 60))
    below = unit(10, 17, (0, 10))
    assert usable((*units, below), live(36, 50, 70), checkpoint, ()) == units


def test_a_unit_that_overlaps_with_other_epochs_is_not_copied() -> None:
    checkpoint = epochs((2, 36), (4, 40))
    for dead in (unit(30, 45, (2, 30)), unit(30, 45, (2, 30), (3, 40)), unit(30, 37, (1, 30))):
        good = unit(20, 36, (1, 20), (2, 28))
        assert usable((dead, good), live(36, 50), checkpoint, ()) == (good,)


def test_while_no_lineage_is_recorded_a_unit_is_judged_by_what_follows_it_alone() -> None:
    assert usable((unit(0, 10, (0, 0)),), live(10, 20), epochs((2, 10)), ()) != ()


def test_the_heads_of_the_checkpoint_come_back_with_the_units() -> None:
    units = (unit(0, 10, (0, 0), (1, 5)), unit(10, 20, (1, 10)), unit(20, 30, (1, 20), (2, 25)))
    assert with_heads(units, epochs((2, 30))) == epochs((0, 0), (1, 5), (2, 25))
    assert with_heads(units, epochs((3, 30), (4, 33))) == epochs(
        (0, 0), (1, 5), (2, 25), (3, 30), (4, 33)
    )
    assert with_heads((), epochs((3, 30))) == epochs((3, 30))


def test_what_is_held_joins_the_log_by_the_epoch_that_both_have() -> None:
    older, across = unit(0, 10, (1, 0)), unit(10, 20, (1, 10), (2, 15))
    assert unbroken((older, across), 20, 2) == (older, across)
    assert unbroken((older, across), 20, 3) == ()
    other = unit(0, 10, (0, 0))
    assert unbroken((other, across), 20, 2) == (across,)
    assert unbroken((older, across), 25, 2) == ()


def test_what_is_held_joins_the_log_by_the_epoch_that_followed_it_and_by_no_other() -> None:
    """A log that began anew where a held segment ends is another one (an unclean election)."""
    older, across = unit(0, 10, (0, 0), followed_by=1), unit(10, 20, (1, 10), followed_by=3)
    assert unbroken((older, across), 20, 3) == (older, across)
    assert unbroken((older, across), 20, 2) == ()
    assert unbroken((older, across), 20, 4) == ()


def test_what_is_held_joins_the_epoch_that_this_broker_leads_and_that_came_next() -> None:
    """Nobody else led in between, for whom the broker would have cut its log."""
    older, last = unit(0, 10, (0, 0)), unit(10, 20, (1, 10))
    assert unbroken((older, last), 20, 2, led=2) == (last,)
    assert unbroken((older, last), 20, 2, led=3) == ()
    assert unbroken((older, last), 20, 3, led=3) == ()
    assert unbroken((older, last), 25, 2, led=2) == ()


def test_what_is_held_of_another_history_hides_nothing_of_this_one() -> None:
    cut_off, good = unit(15, 20, (1, 15), followed_by=2), unit(10, 20, (3, 10))
    older = unit(0, 10, (0, 0), followed_by=3)
    assert unbroken((older, good, cut_off), 20, 3) == (older, good)


def test_what_is_held_joins_the_log_that_begins_amid_it_by_the_epoch_there() -> None:
    across = unit(10, 25, (1, 10), (2, 15), (3, 22))
    older, inside = unit(0, 12, (0, 0), (1, 8)), unit(10, 15, (1, 10))
    assert unbroken((older, inside, across), 20, 2) == (older, across)
    assert unbroken((older, inside, across), 20, 3) == ()
    assert unbroken((older, inside, across), 26, 3) == ()
    assert unbroken((older, across), 20, None) == ()
    cut = unit(5, 25, (1, 12), (2, 15))
    assert unbroken((unit(0, 12, (1, 0)), cut), 20, 2) == (cut,)


def test_the_oldest_go_first_and_only_those_that_free_something() -> None:
    units = (unit(20, 30), unit(0, 10), unit(10, 20, alone=False), unit(30, 40))

    def gone(*, bytes_max: int, bytes_missing: int) -> list[tuple[int, Release]]:
        found = over_budget(units, bytes_max=bytes_max, bytes_missing=bytes_missing)
        return [(each.base_offset, why) for each, why in found]

    assert gone(bytes_max=300, bytes_missing=-5) == []
    assert gone(bytes_max=299, bytes_missing=-5) == [(0, Release.BYTES_MAX)]
    assert gone(bytes_max=150, bytes_missing=-5) == [
        (0, Release.BYTES_MAX),
        (20, Release.BYTES_MAX),
    ]
    assert gone(bytes_max=300, bytes_missing=1) == [(0, Release.FREE_BYTES_MIN)]
    assert gone(bytes_max=299, bytes_missing=150) == [
        (0, Release.BYTES_MAX),
        (20, Release.FREE_BYTES_MIN),
    ]


def test_an_epoch_below_the_first_of_the_lineage_stands_only_where_that_has_not_begun() -> None:
    """A lineage may be a mix of branches: then the copy would never get the epochs it is planned
    by.
    """
    held = unit(22, 29, (0, 22), (2, 23))
    above = live(29, 40), epochs((2, 29))
    assert usable((held,), *above, epochs((1, 0), (2, 23))) == ()
    assert usable((held,), *above, epochs((2, 23))) == (held,)
