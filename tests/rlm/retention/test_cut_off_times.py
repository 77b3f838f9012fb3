"""How long segments have been outside the lineage, as one process sees it."""

from __future__ import annotations

import pytest

from rlm.retention.cut_off_times import CutOffSeen
from tests.rlmm.state_world import ORDERS, segment_uuid

FIRST, SECOND = segment_uuid(1), segment_uuid(2)
TRASH_MS = 1_000
TOKEN = 7


@pytest.fixture
def now_s() -> list[float]:
    return [50.0]


@pytest.fixture
def seen(now_s: list[float]) -> CutOffSeen:
    return CutOffSeen(lambda: now_s[0])


def test_each_segment_has_its_own_time(seen: CutOffSeen, now_s: list[float]) -> None:
    assert seen.look(ORDERS, TOKEN, {FIRST}) == 1
    now_s[0] += 0.25
    assert seen.look(ORDERS, TOKEN, {FIRST, SECOND}) == 1
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == frozenset()
    assert seen.left_ms(ORDERS, TOKEN, TRASH_MS) == 750
    now_s[0] += 0.75
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == {FIRST}
    assert seen.left_ms(ORDERS, TOKEN, TRASH_MS) == 0
    assert seen.look(ORDERS, TOKEN, {SECOND}) == 0
    assert seen.left_ms(ORDERS, TOKEN, TRASH_MS) == 250
    now_s[0] += 0.25
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == {SECOND}
    assert seen.left_ms(ORDERS, TOKEN, TRASH_MS) == 0
    seen.look(ORDERS, TOKEN, ())
    assert seen.left_ms(ORDERS, TOKEN, TRASH_MS) is None


def test_what_came_back_and_is_cut_off_again_begins_anew(
    seen: CutOffSeen, now_s: list[float]
) -> None:
    seen.look(ORDERS, TOKEN, {FIRST})
    now_s[0] += 0.9
    assert seen.look(ORDERS, TOKEN, ()) == 0
    assert seen.look(ORDERS, TOKEN, {FIRST}) == 1
    now_s[0] += 0.9
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == frozenset()


def test_a_partition_of_another_node_is_forgotten(seen: CutOffSeen, now_s: list[float]) -> None:
    seen.look(ORDERS, TOKEN, {FIRST})
    now_s[0] += 2
    seen.keep({ORDERS})
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == {FIRST}
    seen.keep(())
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == frozenset()
    assert seen.left_ms(ORDERS, TOKEN, TRASH_MS) is None


def test_each_claim_has_times_of_its_own(seen: CutOffSeen, now_s: list[float]) -> None:
    """Nothing was planned between two claims, and the segment may have been back."""
    seen.look(ORDERS, TOKEN, {FIRST})
    now_s[0] += 2
    assert seen.stayed(ORDERS, TOKEN, TRASH_MS) == {FIRST}
    assert seen.stayed(ORDERS, TOKEN + 2, TRASH_MS) == frozenset()
    assert seen.look(ORDERS, TOKEN + 2, {FIRST}) == 1
    assert seen.left_ms(ORDERS, TOKEN + 2, TRASH_MS) == TRASH_MS
