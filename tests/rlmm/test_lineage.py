from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs, epoch_for_offset
from rlmm.lineage import MergedLineage, ascending, epoch_bounds, filtered, merge, within_lineage
from rlmm.segment import OFFSET_MAX
from tests.rlmm.state_world import epochs

Pairs = tuple[tuple[int, int], ...]


def merged(current: Pairs, checkpoint: Pairs, *, higher: bool = True) -> MergedLineage:
    return merge(
        epochs(*current),
        epochs(*checkpoint),
        leader_epoch=checkpoint[-1][0],
        higher_epoch=higher,
    )


def test_epochs_without_records_are_filtered_out() -> None:
    history = ((0, 0), (1, 0), (2, 0), (3, 30), (4, 40), (5, 60), (6, 60), (7, 70), (8, 70))
    assert filtered(history) == epochs((2, 0), (3, 30), (4, 40), (6, 60), (8, 70))


@pytest.mark.parametrize(
    ("current", "checkpoint", "expected", "cut_at"),
    [
        # the first claim of all
        ((), ((2, 396),), ((2, 396),), None),
        # nothing new, and a head that local retention cut
        (((0, 0), (2, 300)), ((0, 0), (2, 300)), ((0, 0), (2, 300)), None),
        (((0, 0), (2, 300)), ((2, 396),), ((0, 0), (2, 300)), None),
        (((0, 0), (1, 100), (2, 300)), ((1, 250), (2, 300)), ((0, 0), (1, 100), (2, 300)), None),
        # a new epoch
        (((0, 0),), ((0, 0), (1, 100)), ((0, 0), (1, 100)), 100),
        (((0, 0), (2, 300)), ((2, 396), (3, 500)), ((0, 0), (2, 300), (3, 500)), 500),
        (((0, 0), (2, 300)), ((3, 500),), ((0, 0), (2, 300), (3, 500)), 500),
        # a broker that knows more of the head
        (((2, 396),), ((0, 0), (2, 200)), ((0, 0), (2, 200)), None),
        (((2, 396),), ((0, 0), (2, 200), (4, 500)), ((0, 0), (2, 200), (4, 500)), 500),
        # ... and an unclean election: what epochs 6 and 7 hold below 500 was written since
        (((5, 500),), ((3, 100), (6, 400)), ((3, 100), (6, 400)), 400),
        (((5, 500),), ((3, 100), (6, 400), (7, 600)), ((3, 100), (6, 400), (7, 600)), 400),
        (((5, 500),), ((3, 100), (4, 400), (7, 450)), ((3, 100), (4, 400), (7, 450)), 450),
        # unclean elections: the tail is cut
        (((0, 0), (1, 100)), ((0, 0), (2, 80)), ((0, 0), (2, 80)), 80),
        (((0, 0), (1, 100), (2, 200)), ((1, 150), (3, 180)), ((0, 0), (1, 100), (3, 180)), 180),
        (((0, 0), (1, 100), (2, 200)), ((0, 0), (3, 50)), ((0, 0), (3, 50)), 50),
        (((0, 0), (1, 50)), ((2, 40),), ((0, 0), (2, 40)), 40),
        # an epoch that had no record
        (((4, 100), (5, 200)), ((4, 100), (6, 200)), ((4, 100), (6, 200)), 200),
        (((4, 100),), ((4, 100), (5, 200), (6, 200)), ((4, 100), (6, 200)), 200),
        # what was taken for epoch 0 belongs to epochs 1 and 2: their start was a cut head
        (
            ((0, 0), (2, 200)),
            ((0, 0), (1, 100), (2, 150), (3, 500)),
            ((0, 0), (1, 100), (2, 150), (3, 500)),
            100,
        ),
        # below the first recorded offset an epoch that is not new changes nothing
        (((3, 100), (7, 200)), ((5, 50), (8, 300)), ((5, 50), (8, 300)), 100),
        (((3, 100), (7, 200)), ((8, 50),), ((8, 50),), 50),
        # equal epochs: the smaller start stays
        (((3, 10), (5, 50)), ((3, 10), (5, 60), (6, 90)), ((3, 10), (5, 50), (6, 90)), 90),
    ],
)
def test_checkpoints_are_merged(
    current: Pairs, checkpoint: Pairs, expected: Pairs, cut_at: int | None
) -> None:
    assert merged(current, checkpoint) == MergedLineage(epochs(*expected), cut_at)


@pytest.mark.parametrize(
    ("current", "checkpoint"),
    [
        (((0, 0), (2, 300)), ((0, 0), (2, 250))),
        (((0, 0), (1, 100), (2, 300)), ((0, 0), (2, 300))),
        (((0, 0), (2, 300)), ((0, 0), (1, 100), (2, 300))),
    ],
)
def test_only_a_higher_epoch_changes_the_lineage(current: Pairs, checkpoint: Pairs) -> None:
    with pytest.raises(InvalidRequest, match="only a higher leader epoch"):
        merged(current, checkpoint, higher=False)
    merged(current, checkpoint, higher=True)


@pytest.mark.parametrize(
    ("checkpoint", "leader_epoch"),
    [
        ((), 0),
        (((0, 0),), 1),
        (((1, 0),), 0),
        (((1, 0), (1, 5)), 1),
        (((2, 0), (1, 5)), 1),
        (((0, 10), (1, 5)), 1),
        (((0, -1),), 0),
        (((-1, 0),), -1),
    ],
)
def test_a_checkpoint_that_no_leader_has_is_refused(checkpoint: Pairs, leader_epoch: int) -> None:
    with pytest.raises(InvalidRequest):
        merge((), epochs(*checkpoint), leader_epoch=leader_epoch, higher_epoch=True)


def test_a_checkpoint_that_contradicts_what_is_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="contradict"):
        merged(((3, 10), (5, 50)), ((3, 10), (4, 55), (5, 60)))


@st.composite
def histories(draw: st.DrawFn) -> Epochs:
    """A lineage with gaps between its epochs."""
    steps = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), min_size=1, max_size=6))
    epoch = offset = 0
    found = []
    for more, records in steps:
        found.append((epoch, offset))
        epoch += more
        offset += records
    return epochs(*found)


@settings(max_examples=100, deadline=None)
@given(histories(), histories())
def test_a_merge_ascends_repeats_without_effect_and_agrees_with_the_checkpoint(
    current: Epochs, checkpoint: Epochs
) -> None:
    epoch = checkpoint[-1].epoch
    try:
        once = merge(current, checkpoint, leader_epoch=epoch, higher_epoch=True)
    except InvalidRequest:
        return
    assert ascending(once.epochs)
    assert filtered(once.epochs) == once.epochs
    assert once.epochs[-1].epoch == epoch
    again = merge(once.epochs, checkpoint, leader_epoch=epoch, higher_epoch=False)
    assert again == MergedLineage(once.epochs, None)
    end = max(current[-1].start_offset, checkpoint[-1].start_offset) + 2
    for offset in range(current[0].start_offset, end):
        before, after = epoch_for_offset(current, offset), epoch_for_offset(once.epochs, offset)
        if once.cut_at is None or offset < once.cut_at:
            assert before == after
        elif offset == once.cut_at:
            assert before != after


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(0, 80))
def test_a_cut_head_changes_nothing(history: Epochs, offset: int) -> None:
    head_cut = [entry for entry in history if entry.start_offset > offset]
    holding = [entry for entry in history if entry.start_offset <= offset]
    checkpoint = epochs((holding[-1].epoch, offset), *head_cut)
    found = merge(history, checkpoint, leader_epoch=history[-1].epoch, higher_epoch=False)
    assert found == MergedLineage(history, None)


LINEAGE = epochs((0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (7, 70))


@pytest.mark.parametrize(
    ("start", "end", "segment", "expected"),
    [
        (15, 35, ((1, 15), (2, 20), (3, 30)), True),
        (15, 19, ((1, 15),), True),
        (0, 5, ((0, 0),), True),
        (70, 75, ((7, 70),), True),
        (15, 29, ((1, 15), (2, 20)), True),
        (55, 72, ((5, 55), (6, 60), (7, 70)), False),
        (15, 45, ((1, 15), (2, 20), (4, 40)), False),
        (70, 95, ((7, 70),), False),
        (70, 90, ((7, 70),), False),
        (15, 25, ((1, 5), (2, 20)), False),
        (15, 35, ((2, 15), (3, 30)), False),
        (15, 35, ((1, 15), (2, 20)), False),
        (60, 65, ((6, 60),), False),
        (75, 80, ((8, 75),), False),
        (15, 19, (), False),
        (19, 15, ((1, 15),), False),
    ],
)
def test_segments_within_the_lineage(start: int, end: int, segment: Pairs, expected: bool) -> None:
    assert within_lineage(start, end, segment, LINEAGE, 90) is expected


@pytest.mark.parametrize(
    ("segment", "end", "expected"),
    [
        (((5, 14), (7, 15), (9, 100)), 150, True),
        (((2, 5), (3, 6)), 150, False),
        (((7, 15), (9, 100), (10, 200)), 205, False),
        (((8, 75),), 150, False),
        (((7, 15), (9, 101)), 150, False),
        (((9, 99),), 150, False),
    ],
)
def test_segments_within_a_lineage_whose_head_is_cut(
    segment: Pairs, end: int, expected: bool
) -> None:
    lineage = epochs((7, 51), (9, 100))
    assert within_lineage(segment[0][1], end, segment, lineage, 210) is expected


def test_an_unknown_end_of_the_log_is_not_checked() -> None:
    assert within_lineage(70, 95, ((7, 70),), LINEAGE, None)
    assert not within_lineage(70, 95, ((7, 70),), (), None)


def test_bounds_of_an_epoch() -> None:
    lineage = epochs((2, 10), (4, 30))
    assert epoch_bounds(lineage, 2) == (0, 29)
    assert epoch_bounds(lineage, 4) == (30, OFFSET_MAX)
    assert epoch_bounds(lineage, 3) is None
    assert epoch_bounds((), 0) is None


@pytest.mark.parametrize("first", [(-1, 0), (0, -1), (-1, -1)])
def test_no_number_of_a_lineage_is_negative(first: tuple[int, int]) -> None:
    assert not ascending((EpochEntry(*first),))
    assert not ascending((EpochEntry(*first), EpochEntry(1, 5)))
