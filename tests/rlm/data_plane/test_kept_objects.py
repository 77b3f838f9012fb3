"""No full garbage collections while a catalogue is made, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from rlm.data_plane.kept_objects import IN_A_ROW_MAX, NEVER, kept_objects


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield 701, 11, 12
    gc.set_threshold(*before)


def test_all_is_as_before_when_the_last_of_several_ends(thresholds: tuple[int, int, int]) -> None:
    one, two = kept_objects(), kept_objects()
    one.__enter__()
    two.__enter__()
    assert gc.get_threshold() == (701, 11, NEVER)
    one.__exit__(None, None, None)
    assert gc.get_threshold() == (701, 11, NEVER)
    two.__exit__(None, None, None)
    assert gc.get_threshold() == thresholds


def test_what_is_young_is_still_looked_through(thresholds: tuple[int, int, int]) -> None:
    with kept_objects():
        young, middle, old = (each["collections"] for each in gc.get_stats())
        for _ in range(200_000):
            knot: list[object] = []
            knot.append(knot)
        after = [each["collections"] for each in gc.get_stats()]
    assert after[0] > young
    assert after[1] > middle
    assert after[2] == old


def test_blocks_that_never_cease_to_overlap_suspend_no_more_in_the_end(
    thresholds: tuple[int, int, int],
) -> None:
    blocks = [kept_objects() for _ in range(IN_A_ROW_MAX + 1)]
    blocks[0].__enter__()
    for before, block in pairwise(blocks):
        block.__enter__()
        before.__exit__(None, None, None)
    assert gc.get_threshold() == thresholds
    with kept_objects():
        assert gc.get_threshold()[2] == NEVER
