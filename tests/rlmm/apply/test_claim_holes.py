"""No offset that the lineage counts as copied is missing without a word (no_hole)."""

from __future__ import annotations

import pytest

from rlmm.apply.claim_holes import LINEAGE_CHANGED
from rlmm.apply.outcome import Verdict
from rlmm.partition_state import LostOffsets, Mode
from rlmm.segment import SegmentState
from tests.rlmm.state_world import NODE_1, NODE_2, World, epochs


def taken_over(world: World, *checkpoint: tuple[int, int]) -> None:
    """The other node leads now."""
    world.claim(*checkpoint, node=NODE_2 if world.node == NODE_1 else NODE_1)


def test_a_head_that_becomes_known_leaves_no_silent_hole() -> None:
    """A log start was taken back to 500, below all that the lineage knew. Offsets 500-549 went to
    the tier as epoch 4; then a broker with the whole history says that they were epoch 3.
    """
    world = World()
    world.leads((5, 500))
    taken_over(world, (4, 600), (6, 700))
    assert (world.state.lineage, world.state.log_start_offset) == (epochs((4, 600), (6, 700)), 500)
    world.copy(1, 500, 699, [(4, 500)])
    assert world.serving(4, 500) == 1
    taken_over(world, (3, 400), (4, 550), (6, 700), (7, 800))
    assert world.lost() == [(500, 549)]
    assert world.serving(4, 550) == 1


def test_a_hole_from_the_first_offset_on_is_recorded_whole() -> None:
    world = World()
    world.leads((5, 0))
    taken_over(world, (4, 100), (6, 200))
    world.copy(1, 0, 199, [(4, 0)])
    taken_over(world, (3, 20), (4, 50), (6, 200), (7, 300))
    assert world.lost() == [(0, 49)]


def test_holes_that_are_recorded_already_keep_their_reason() -> None:
    world = World()
    world.leads((5, 500))
    taken_over(world, (4, 600), (6, 700))
    world.accept(world.a_lost_range(500, 519, "local retention"))
    world.copy(1, 520, 699, [(4, 520)])
    taken_over(world, (3, 400), (4, 550), (6, 700), (7, 800))
    assert world.state.lost_ranges == (
        LostOffsets(500, 519, "local retention"),
        LostOffsets(520, 549, LINEAGE_CHANGED),
    )


def test_what_a_known_head_serves_is_lost_no_more() -> None:
    """Epoch 3 was copied long ago; the lineage forgot it, and 500-599 counted as lost."""
    world = World()
    world.leads((5, 500), mode=Mode.DELEGATED)
    world.copy(1, 480, 549, [(3, 480)])
    world.mode(Mode.SIDECAR)
    taken_over(world, (4, 600), (6, 700))
    world.accept(world.a_lost_range(500, 599))
    world.copy(2, 600, 699, [(4, 600)])
    taken_over(world, (3, 400), (4, 550), (6, 700), (7, 800))
    assert world.serving(3, 549) == 1
    assert world.lost() == [(550, 599)]


def test_what_is_lost_below_log_start_is_forgotten_before_a_known_head_serves_it() -> None:
    """As above, but log start has moved on into the lost range."""
    world = World()
    world.leads((5, 500), mode=Mode.DELEGATED)
    world.copy(1, 480, 549, [(3, 480)])
    world.mode(Mode.SIDECAR)
    taken_over(world, (4, 600), (6, 700))
    lost = world.a_lost_range(500, 599)
    world.accept(lost)
    world.log_start(560, 4)
    assert world.lost() == [(560, 599)]
    assert world.put(lost).verdict is Verdict.NO_EFFECT
    taken_over(world, (3, 400), (4, 550), (6, 700), (7, 800))
    assert world.serving(3, 549) == 1
    assert world.lost() == [(560, 599)]


def test_a_cut_below_which_something_was_lost_takes_log_start_back_and_keeps_no_lost_range() -> (
    None
):
    world = World()
    world.leads((5, 500))
    world.accept(world.a_lost_range(500, 599))
    world.log_start(600, 5)
    taken_over(world, (5, 500), (6, 550))
    assert world.state.log_start_offset == 550
    assert world.lost() == []


def test_a_head_below_log_start_touches_no_lost_range() -> None:
    world = World()
    world.leads((5, 500))
    world.copy(1, 500, 599, [(5, 500)])
    world.accept(world.a_lost_range(600, 699))
    world.copy(2, 700, 799, [(5, 700)])
    world.log_start(650, 5)
    taken_over(world, (3, 100), (5, 450), (6, 800))
    assert world.state.lineage == epochs((3, 100), (5, 450), (6, 800))
    assert world.lost() == [(650, 699)]


def test_what_is_served_below_a_cut_head_stays_in_the_lineage() -> None:
    """Epoch 4 is known from 600 on and serves from 500 on; then a leader knows nothing below 600.
    Its copies are in retention: they are served, and may not go.
    """
    world = World()
    world.leads((5, 500))
    taken_over(world, (4, 600), (6, 700))
    world.copy(1, 500, 699, [(4, 500)])
    taken_over(world, (7, 600))
    assert world.state.lineage == epochs((4, 500), (7, 600))
    assert world.serving(4, 500) == 1
    assert (world.state.next_offset, world.lost()) == (600, [])
    assert world.verdict(world.a_delete(1)) is Verdict.IN_USE


def test_what_is_served_below_log_start_proves_no_epoch() -> None:
    world = World()
    world.leads((4, 600))
    world.copy(1, 500, 699, [(4, 500)])
    taken_over(world, (7, 600))
    assert world.state.lineage == epochs((7, 600))


def test_a_gap_below_an_epoch_that_comes_back_is_recorded() -> None:
    """200-249 were recorded as lost, then cut off. Epoch 7 comes back with them as offsets still
    to copy, then epoch 8 with copies behind them.
    """
    world = World()
    world.leads((4, 100))
    world.copy(1, 100, 149, [(4, 100)])
    world.claim((4, 100), (7, 150), node=NODE_2)
    world.copy(2, 150, 199, [(7, 150)])
    world.claim((4, 100), (7, 150), (8, 250), node=NODE_1)
    world.accept(world.a_lost_range(200, 249))
    world.copy(3, 250, 299, [(8, 250)])
    world.claim((4, 100), (9, 150), node=NODE_2)
    assert world.lost() == []
    world.claim((4, 100), (7, 150), (10, 260), node=NODE_1)
    assert world.state.next_offset == 200
    world.claim((4, 100), (7, 150), (8, 250), (11, 300), node=NODE_2)
    assert world.state.next_offset == 300
    assert world.lost() == [(200, 249)]


def test_a_gap_is_recorded_where_the_old_lineage_had_no_copy_at_all() -> None:
    """Epoch 5 was copied and cut off; it comes back behind offsets of epoch 4, not yet copied."""
    world = World()
    world.leads((5, 100))
    world.copy(1, 100, 199, [(5, 100)])
    world.claim((4, 100), (6, 300), node=NODE_2)
    assert (world.state.highest_copied, world.state.next_offset) == (None, 100)
    world.claim((5, 150), (7, 200), node=NODE_1)
    assert world.state.lineage == epochs((4, 100), (5, 150), (7, 200))
    assert world.state.next_offset == 200
    assert world.lost() == [(100, 149)]


def test_records_written_below_a_head_that_was_known_too_late_are_not_forgotten() -> None:
    """The tier begins at 500. An unclean election goes back to 400 and writes on from there."""
    world = World()
    world.leads((5, 500))
    world.copy(1, 500, 599, [(5, 500)])
    taken_over(world, (3, 100), (6, 400))
    assert (world.state.log_start_offset, world.state.next_offset) == (400, 400)
    world.copy(2, 400, 549, [(6, 400)])
    assert world.serving(6, 400) == 2


@pytest.fixture
def delegated() -> World:
    """The broker copied 0-499 and deleted 0-99; its leader lost 200-299 on the way."""
    world = World()
    world.claim((0, 0), mode=Mode.DELEGATED)
    for number, (start, end) in enumerate(((0, 99), (100, 199), (300, 499)), 1):
        world.copy(number, start, end, [(0, start)])
    world.accept(world.a_delete(1, SegmentState.COPY_SEGMENT_FINISHED))
    return world


def test_after_delegated_mode_log_start_is_where_the_broker_left_it(delegated: World) -> None:
    delegated.mode(Mode.SIDECAR)
    assert delegated.state.log_start_offset == -1
    delegated.claim((0, 350))
    assert delegated.state.log_start_offset == 100
    assert delegated.lost() == [(200, 299)]
    assert delegated.state.next_offset == 500


def test_an_older_log_start_follows_what_the_broker_deleted(delegated: World) -> None:
    delegated.log_start(50, 0)
    delegated.mode(Mode.SIDECAR)
    delegated.claim((0, 350))
    assert delegated.state.log_start_offset == 100


def test_when_the_broker_deleted_everything_copying_goes_on_behind_it(delegated: World) -> None:
    delegated.accept(delegated.a_delete(2), delegated.a_delete(3))
    delegated.mode(Mode.SIDECAR)
    delegated.claim((0, 350))
    assert (delegated.state.log_start_offset, delegated.state.next_offset) == (500, 500)
    assert delegated.lost() == []


def test_log_start_does_not_follow_into_what_another_leader_wrote() -> None:
    """0-299 are deleted; then the claimant says that 200-299 were of epoch 1, which nobody copied:
    they are no retention of the broker's.
    """
    world = World()
    world.claim((0, 0), mode=Mode.DELEGATED)
    world.copy(1, 0, 299, [(0, 0)])
    world.claim((0, 0), (2, 300), mode=Mode.DELEGATED)
    world.copy(2, 300, 399, [(2, 300)])
    world.accept(world.a_delete(1))
    world.mode(Mode.SIDECAR)
    world.claim((0, 0), (1, 200), (2, 300), (3, 400))
    assert world.state.log_start_offset == 200
    assert world.lost() == [(200, 299)]


def test_log_start_follows_over_the_border_of_epochs() -> None:
    world = World()
    world.claim((0, 0), (1, 50), mode=Mode.DELEGATED)
    world.copy(1, 0, 99, [(0, 0), (1, 50)])
    world.copy(2, 100, 199, [(1, 100)])
    world.accept(world.a_delete(1))
    world.mode(Mode.SIDECAR)
    world.claim((0, 0), (1, 50))
    assert (world.state.log_start_offset, world.lost()) == (100, [])


def test_a_pause_changes_neither_log_start_nor_lost_ranges() -> None:
    world = World()
    world.leads((0, 100))
    world.accept(world.a_lost_range(100, 149))
    world.copy(1, 150, 199, [(0, 150)])
    before = world.state
    world.mode(Mode.PAUSED)
    world.mode(Mode.SIDECAR)
    world.claim((0, 150))
    after = world.state
    assert (after.log_start_offset, after.lost_ranges) == (100, before.lost_ranges)


def test_a_broker_that_never_told_its_log_start_has_all_from_the_first_offset_on() -> None:
    world = World()
    world.claim((5, 0), mode=Mode.DELEGATED)
    world.copy(1, 0, 99, [(5, 0)])
    assert world.state.log_start_offset == -1
    world.mode(Mode.SIDECAR)
    taken_over(world, (5, 0), (6, 200))
    assert (world.state.log_start_offset, world.lost()) == (0, [])
