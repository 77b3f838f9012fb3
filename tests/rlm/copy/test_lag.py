"""Lag in bytes, segments and age: what counts, and which topics are named."""

from __future__ import annotations

from dataclasses import replace

from rlm.copy.copy_plan import uncopied
from rlm.copy.lag import OTHER_TOPICS, Lag, lag, summed, worst_topics
from tests.rlm.planner_facts import NOW_MS, LogSegment, log


def sealed(*bases: int) -> tuple[LogSegment, ...]:
    """Each rolled a second after the one before it; the last sealed one just now."""
    segments = log(*bases)
    ages = range(len(segments) - 2, -1, -1)
    timed = [
        replace(segment, sealed_at_ms=NOW_MS - age * 1_000)
        for segment, age in zip(segments[:-1], ages, strict=True)
    ]
    return (*timed, segments[-1])


def test_only_sealed_segments_that_hold_the_next_offset_or_later_ones_count() -> None:
    segments = sealed(100, 200, 300, 400)
    assert [each.base_offset for each in uncopied(segments, 250)] == [200, 300]
    assert lag(segments, 250, NOW_MS) == Lag(2_000, 2, 1_000)
    assert lag(segments, -1, NOW_MS) == Lag(3_000, 3, 2_000)


def test_an_idle_partition_has_none() -> None:
    assert lag(sealed(0), -1, NOW_MS) == Lag(0, 0, 0)
    assert lag(sealed(0, 100, 200), 200, NOW_MS) == Lag(0, 0, 0)
    assert lag((), 0, NOW_MS) == Lag(0, 0, 0)


def test_a_single_record_in_the_active_segment_is_no_lag_and_in_a_sealed_one_is() -> None:
    assert lag(sealed(0, 1), 1, NOW_MS) == Lag(0, 0, 0)
    assert lag(sealed(0, 1), 0, NOW_MS) == Lag(1_000, 1, 0)


def test_the_age_is_never_negative_and_that_of_the_oldest_whose_time_is_known() -> None:
    ahead = [replace(each, sealed_at_ms=NOW_MS + 50) for each in log(0, 10)[:1]]
    assert lag([*ahead, *log(10)], 0, NOW_MS) == Lag(1_000, 1, 0)
    first, second, active = sealed(0, 10, 20)
    untimed = replace(first, sealed_at_ms=None)
    assert lag((untimed, second, active), 0, NOW_MS + 7) == Lag(2_000, 2, 7)


def test_topics_beyond_the_bound_are_one_sum_and_nothing_is_lost() -> None:
    lags = {f"t{number}": Lag(10, 1, number) for number in range(1, 6)} | {"idle": Lag(0, 0, 0)}
    shown = worst_topics(lags, 2)
    assert shown == {"t5": Lag(10, 1, 5), "t4": Lag(10, 1, 4), OTHER_TOPICS: Lag(30, 3, 3)}
    assert summed(shown.values()) == summed(lags.values())
    assert worst_topics(lags, 5) == {name: each for name, each in lags.items() if name != "idle"}


def test_what_left_the_local_log_uncopied_counts_whether_or_not_it_is_recorded() -> None:
    assert lag(sealed(200, 300), 50, NOW_MS).gone_offsets == 150
    assert lag(sealed(200, 300), 250, NOW_MS).gone_offsets == 0
    assert lag(sealed(300), 250, NOW_MS).gone_offsets == 50
    assert lag(sealed(200, 300), -1, NOW_MS).gone_offsets == 0
    assert summed([Lag(1, 1, 1, 7), Lag(0, 0, 0, 3)]).gone_offsets == 10
    assert worst_topics({"gone": Lag(0, 0, 0, 3)}, 5) == {"gone": Lag(0, 0, 0, 3)}


def test_what_another_one_holds_as_well_is_counted_once_as_it_is_copied_once() -> None:
    """Held segments may reach over others, where a replica that was fetched again has its borders
    elsewhere.
    """
    held = LogSegment(0, 25, 2_500)
    own = (LogSegment(5, 10), LogSegment(10, 20), LogSegment(20, 30), LogSegment(30, None))
    assert uncopied((held, *own), 0) == (held, own[2])
    assert lag((held, *own), 0, NOW_MS) == Lag(3_500, 2, 0)
    assert uncopied((held, *own), 25) == (own[2],)
