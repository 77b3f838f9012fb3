"""The token bucket: never more than the rate and its burst, and no less than the rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlm.quota.byte_rate import BURST_S, ByteRate

RATE = 1_000_000


@given(
    takes=st.lists(
        st.tuples(st.integers(1, int(RATE * BURST_S)), st.floats(0, 3)), min_size=1, max_size=60
    )
)
def test_in_any_span_no_more_moves_than_the_rate_and_one_burst(
    takes: list[tuple[int, float]],
) -> None:
    bucket, now_s = ByteRate(RATE, 0.0), 0.0
    taken: list[tuple[float, int]] = []
    for size, idle_s in takes:
        now_s += idle_s
        now_s += bucket.wait_s(size, now_s)
        bucket.take(size, now_s)
        taken.append((now_s, size))
    for first in range(len(taken)):
        moved = 0
        for at_s, size in taken[first:]:
            moved += size
            assert moved <= RATE * (at_s - taken[first][0] + BURST_S) + 1


@given(size=st.integers(1, 3 * RATE), count=st.integers(1, 50))
def test_who_asks_all_the_time_gets_the_whole_rate(size: int, count: int) -> None:
    bucket, now_s = ByteRate(RATE, 0.0), 0.0
    for _ in range(count):
        now_s += bucket.wait_s(size, now_s)
        assert bucket.wait_s(size, now_s) == 0
        bucket.take(size, now_s)
    assert now_s <= size * count / RATE + 1e-3


def test_nothing_is_saved_up_beyond_the_burst() -> None:
    bucket = ByteRate(RATE, 0.0)
    bucket.take(int(RATE * BURST_S), 3_600.0)
    assert bucket.wait_s(RATE // 10, 3_600.0) == 0.1


def test_another_rate_holds_from_that_moment_on() -> None:
    bucket = ByteRate(RATE, 0.0)
    assert bucket.wait_s(100, 0.0) == 100 / RATE
    bucket.change(100, 0.0)
    assert bucket.wait_s(50, 0.0) == 0.5
    bucket.change(RATE, 0.25)
    assert bucket.wait_s(50, 0.25) == 25 / RATE
    full = ByteRate(RATE, 0.0)
    full.change(1_000, 9.0)
    assert full.wait_s(500, 9.0) == 0
    full.take(500, 9.0)
    assert full.wait_s(500, 9.0) == 0.5


def test_a_clock_that_goes_back_gives_nothing_twice() -> None:
    bucket = ByteRate(RATE, 10.0)
    bucket.take(int(RATE * BURST_S), 11.0)
    assert bucket.wait_s(RATE // 2, 3.0) == BURST_S
    assert bucket.wait_s(RATE // 2, 11.0) == BURST_S
