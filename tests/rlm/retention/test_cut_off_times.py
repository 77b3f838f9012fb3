"""How long segments have been outside the lineage, as one process sees it."""

from __future__ import annotations

import pytest

from rlm.retention.cut_off_times import CutOffSeen
from tests.rlmm.state_world import ORDERS, segment_uuid

FIRST, SECOND = segment_uuid(1), segment_uuid(2)
TRASH_MS = 1_000


@pytest.fixture
def now_s() -> list[float]:
    return [50.0]


@pytest.fixture
def seen(now_s: list[float]) -> CutOffSeen:
    return CutOffSeen(lambda: now_s[0])


def test_each_segment_has_its_own_time(seen: CutOffSeen, now_s: list[float]) -> None:
    assert seen.look(ORDERS, {FIRST}) == 1
    now_s[0] += 0.25
    assert seen.look(ORDERS, {FIRST, SECOND}) == 1
    assert seen.stayed(ORDERS, TRASH_MS) == frozenset()
    assert seen.left_ms(ORDERS, TRASH_MS) == 750
    now_s[0] += 0.75
    assert seen.stayed(ORDERS, TRASH_MS) == {FIRST}
    assert seen.left_ms(ORDERS, TRASH_MS) == 0
    assert seen.look(ORDERS, {SECOND}) == 0
    assert seen.left_ms(ORDERS, TRASH_MS) == 250
    now_s[0] += 0.25
    assert seen.stayed(ORDERS, TRASH_MS) == {SECOND}
    assert seen.left_ms(ORDERS, TRASH_MS) == 0
    seen.look(ORDERS, ())
    assert seen.left_ms(ORDERS, TRASH_MS) is None


def test_what_came_back_and_is_cut_off_again_begins_anew(
    seen: CutOffSeen, now_s: list[float]
) -> None:
    seen.look(ORDERS, {FIRST})
    now_s[0] += 0.9
    assert seen.look(ORDERS, ()) == 0
    assert seen.look(ORDERS, {FIRST}) == 1
    now_s[0] += 0.9
    assert seen.stayed(ORDERS, TRASH_MS) == frozenset()


def test_a_partition_of_another_node_is_forgotten(seen: CutOffSeen, now_s: list[float]) -> None:
    seen.look(ORDERS, {FIRST})
    now_s[0] += 2
    seen.keep({ORDERS})
    assert seen.stayed(ORDERS, TRASH_MS) == {FIRST}
    seen.keep(())
    assert seen.stayed(ORDERS, TRASH_MS) == frozenset()
    assert seen.left_ms(ORDERS, TRASH_MS) is None
