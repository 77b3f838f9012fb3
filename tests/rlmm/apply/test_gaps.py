"""Where offsets without a batch are legal, and what an admin gives up of what can't be copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlmm.apply.outcome import Verdict
from rlmm.partition_state import LostOffsets, Mode
from rlmm.records.control_records import GapsAllowed, OffsetsSkipped
from rlmm.segment import PartitionDeleteState
from tests.rlmm.state_world import ORDERS, World

NAMED = "skipped by ann: the disk died"


def skipped(world: World, start: int, end: int, why: str = NAMED) -> OffsetsSkipped:
    return OffsetsSkipped(world.partition, world.token, start, end, why)


def lost(world: World) -> list[LostOffsets]:
    return list(world.state.lost_ranges)


@pytest.fixture
def world() -> World:
    """Copied 0-99; 100 is next."""
    world = World()
    world.claim((0, 0))
    world.accept(world.a_log_start(0, 0))
    world.copy(1, 0, 99, [(0, 0)])
    return world


def test_gaps_are_allowed_once_for_the_first_reason(world: World) -> None:
    assert world.state.gaps_allowed == ""
    world.accept(GapsAllowed(ORDERS, "compacted"))
    assert world.verdict(GapsAllowed(ORDERS, "a mirror")) is Verdict.NO_EFFECT
    assert world.state.gaps_allowed == "compacted"


def test_gaps_need_a_reason(world: World) -> None:
    assert world.verdict(GapsAllowed(ORDERS, "")) is Verdict.INVALID


def test_gaps_may_be_allowed_before_anybody_claims_the_partition_in_whatever_mode() -> None:
    for mode in (Mode.SIDECAR, Mode.DELEGATED):
        world = World()
        world.accept(GapsAllowed(ORDERS, "compacted"))
        world.claim((0, 0), mode=mode)
        assert (world.state.mode, world.state.gaps_allowed) == (mode, "compacted")


def test_an_admins_mode_of_a_partition_nobody_claimed_stands() -> None:
    world = World()
    world.accept(GapsAllowed(ORDERS, "compacted"))
    assert world.state.mode is Mode.SIDECAR
    assert world.verdict(world.a_claim([(0, 0)], mode=Mode.DELEGATED)) is Verdict.ACCEPTED
    assert world.verdict(world.a_claim([(0, 0)], mode=Mode.SIDECAR)) is Verdict.INVALID


def test_a_skipped_range_may_lie_above_the_next_offset_and_is_passed_when_it_is_reached(
    world: World,
) -> None:
    world.accept(skipped(world, 150, 199))
    assert world.state.next_offset == 100
    assert lost(world) == [LostOffsets(150, 199, NAMED)]
    world.copy(2, 100, 149, [(0, 100)])
    assert world.state.next_offset == 200


def test_a_skipped_range_never_begins_below_the_next_offset(world: World) -> None:
    assert world.verdict(skipped(world, 99, 120)) is Verdict.CONFLICT
    assert world.verdict(skipped(world, 120, 110)) is Verdict.INVALID


def test_a_skipped_range_needs_the_claim_that_stands(world: World) -> None:
    old = skipped(world, 150, 199)
    world.claim((0, 0), (1, 100))
    assert world.verdict(old) is Verdict.FENCED
    assert world.verdict(replace(old, token=world.token)) is Verdict.ACCEPTED
    assert world.verdict(replace(old, token=world.token)) is Verdict.NO_EFFECT


def test_lost_ranges_stay_disjoint_however_they_meet(world: World) -> None:
    world.accept(skipped(world, 150, 199), skipped(world, 190, 209, "more"))
    assert lost(world) == [LostOffsets(150, 189, NAMED), LostOffsets(190, 209, "more")]
    world.accept(world.a_lost_range(100, 159))
    assert lost(world) == [
        LostOffsets(100, 159, "gone"),
        LostOffsets(160, 189, NAMED),
        LostOffsets(190, 209, "more"),
    ]
    assert world.state.next_offset == 210


def test_what_is_copied_after_all_is_lost_no_more(world: World) -> None:
    world.accept(skipped(world, 150, 199))
    world.copy(2, 100, 299, [(0, 100)])
    assert (lost(world), world.state.next_offset) == ([], 300)


def test_a_partition_marked_for_deletion_takes_neither(world: World) -> None:
    world.accept(world.a_step(PartitionDeleteState.DELETE_PARTITION_MARKED))
    assert world.verdict(GapsAllowed(ORDERS, "compacted")) is Verdict.CONFLICT
    assert world.verdict(skipped(world, 150, 199)) is Verdict.CONFLICT
