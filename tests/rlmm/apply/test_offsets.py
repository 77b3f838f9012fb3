from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rlmm.apply.outcome import Verdict
from rlmm.partition_state import LostOffsets, Mode
from rlmm.records.records import MetadataRecord
from rlmm.segment import PartitionDeleteState
from tests.rlmm.state_world import NODE_2, World

MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED


@pytest.fixture
def world() -> World:
    """Epochs 2 from 100 and 4 from 150; log start 100; copied 100-199."""
    world = World()
    world.leads((2, 100), (4, 150))
    world.copy(1, 100, 199, [(2, 100), (4, 150)])
    return world


Records = Callable[[World], MetadataRecord]

LOG_STARTS: dict[str, tuple[Verdict, Records]] = {
    "forward": (Verdict.ACCEPTED, lambda w: w.a_log_start(120, 2)),
    "forward into the next epoch": (Verdict.ACCEPTED, lambda w: w.a_log_start(150, 4)),
    "up to the next offset": (Verdict.ACCEPTED, lambda w: w.a_log_start(200, 4)),
    "past the next offset": (Verdict.GAP, lambda w: w.a_log_start(201, 4)),
    "the same": (Verdict.NO_EFFECT, lambda w: w.a_log_start(100, 2)),
    "back": (Verdict.CONFLICT, lambda w: w.a_log_start(99, 2)),
    "in another epoch": (Verdict.DIVERGED, lambda w: w.a_log_start(150, 2)),
    "negative": (Verdict.INVALID, lambda w: w.a_log_start(-1, 2)),
    "no offset": (Verdict.INVALID, lambda w: w.a_log_start(2**63 - 1, 4)),
    "not the token": (Verdict.FENCED, lambda w: replace(w.a_log_start(120, 2), token=77)),
}


@pytest.mark.parametrize("name", LOG_STARTS)
def test_log_starts(world: World, name: str) -> None:
    verdict, record = LOG_STARTS[name]
    judge(world, record(world), verdict)


def judge(world: World, record: MetadataRecord, verdict: Verdict) -> None:
    changed = world.changed_by(record)
    assert changed is (verdict is Verdict.ACCEPTED)
    assert world.verdict(record) is (Verdict.NO_EFFECT if changed else verdict)


def test_the_first_log_start_makes_the_next_offset_known() -> None:
    world = World()
    world.claim((2, 396))
    assert world.state.next_offset == -1
    world.log_start(500, 2)
    assert (world.state.log_start_offset, world.state.next_offset) == (500, 500)


def test_a_log_start_below_a_cut_head_belongs_to_the_first_epoch() -> None:
    world = World()
    world.claim((2, 396))
    assert world.verdict(world.a_log_start(390, 1)) is Verdict.DIVERGED
    world.log_start(390, 2)


def test_what_is_lost_below_log_start_is_forgotten(world: World) -> None:
    world.accept(world.a_lost_range(200, 249), world.a_lost_range(250, 299, "other"))
    world.log_start(249, 4)
    assert world.lost() == [(249, 249), (250, 299)]
    world.log_start(250, 4)
    assert world.lost() == [(250, 299)]
    assert world.state.next_offset == 300


def test_in_delegated_mode_log_start_goes_where_the_broker_says() -> None:
    world = World()
    world.claim((2, 0), mode=Mode.DELEGATED)
    world.copy(1, 0, 99, [(2, 0)])
    world.log_start(5000, 2)
    assert world.state.next_offset == 5000


LOST: dict[str, tuple[Verdict, Records]] = {
    "at the next offset": (Verdict.ACCEPTED, lambda w: w.a_lost_range(200, 299)),
    "below it": (Verdict.CONFLICT, lambda w: w.a_lost_range(199, 299)),
    "above it": (Verdict.CONFLICT, lambda w: w.a_lost_range(201, 299)),
    "backwards": (Verdict.INVALID, lambda w: w.a_lost_range(200, 199)),
    "no offset": (Verdict.INVALID, lambda w: w.a_lost_range(200, 2**63 - 1)),
    "not the token": (Verdict.FENCED, lambda w: replace(w.a_lost_range(200, 299), token=77)),
}


@pytest.mark.parametrize("name", LOST)
def test_lost_ranges(world: World, name: str) -> None:
    verdict, record = LOST[name]
    judge(world, record(world), verdict)


def test_neighbouring_lost_ranges_of_one_reason_become_one(world: World) -> None:
    second = world.a_lost_range(300, 399)
    world.accept(world.a_lost_range(200, 299), second, world.a_lost_range(400, 449, "other"))
    assert world.state.lost_ranges == (
        LostOffsets(200, 399, "gone"),
        LostOffsets(400, 449, "other"),
    )
    assert world.state.next_offset == 450
    assert world.verdict(second) is Verdict.NO_EFFECT


def test_a_range_that_shrank_meanwhile_is_not_recorded_again(world: World) -> None:
    lost = world.a_lost_range(200, 299)
    world.accept(lost)
    world.copy(2, 200, 249, [(4, 200)])
    assert world.verdict(lost) is Verdict.CONFLICT
    assert world.lost() == [(250, 299)]


def test_nothing_is_lost_before_the_log_start_is_known() -> None:
    world = World()
    world.claim((2, 0))
    assert world.verdict(world.a_lost_range(0, 9)) is Verdict.CONFLICT


def test_in_delegated_mode_nothing_is_recorded_as_lost() -> None:
    world = World()
    world.claim((2, 0), mode=Mode.DELEGATED)
    assert world.verdict(world.a_lost_range(0, 9)) is Verdict.CONFLICT


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [([MARKED], Verdict.CONFLICT), ([MARKED, STARTED], Verdict.GONE)],
)
def test_a_partition_that_goes_keeps_its_offsets(
    world: World, steps: list[PartitionDeleteState], verdict: Verdict
) -> None:
    world.delete(*steps)
    judge(world, world.a_log_start(120, 2), verdict)
    judge(world, world.a_lost_range(200, 299), verdict)


def test_a_leader_that_was_replaced_moves_nothing(world: World) -> None:
    records: list[MetadataRecord] = [world.a_log_start(120, 2), world.a_lost_range(200, 299)]
    world.claim((2, 100), (4, 150), (5, 200), node=NODE_2)
    for record in records:
        judge(world, record, Verdict.FENCED)


def test_an_unknown_partition_has_no_offsets() -> None:
    world = World()
    assert world.verdict(world.a_log_start(0, 0)) is Verdict.FENCED
    assert world.verdict(world.a_lost_range(0, 9)) is Verdict.FENCED
