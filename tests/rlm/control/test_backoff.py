"""When a failed copy is tried again."""

from __future__ import annotations

import pytest

from kafka_formats.errors import Conflict, CorruptData, RetryLater
from rlm.control.backoff import (
    NO_BACK_OFF,
    BackOff,
    BackOffPolicy,
    FailureKind,
    after_failure,
    error_kind,
    failure_kind,
    jittered_s,
)
from tests.rlm.planner_facts import NOW_MS

POLICY = BackOffPolicy(base_s=1.0, max_s=60.0, source_changed_s=0.5, corrupt_s=600.0)


def test_the_ceiling_doubles_with_every_failure_up_to_the_maximum() -> None:
    assert [jittered_s(POLICY, n, 1.0) for n in (1, 2, 3, 4, 7, 50)] == [1, 2, 4, 8, 60, 60]


def test_full_jitter_draws_from_zero_to_the_ceiling() -> None:
    assert jittered_s(POLICY, 4, 0.0) == 0.0
    assert jittered_s(POLICY, 4, 0.25) == 2.0


def test_a_transient_failure_backs_off_further_each_time() -> None:
    first = fail(NO_BACK_OFF, FailureKind.TRANSIENT)
    second = fail(first, FailureKind.TRANSIENT)
    assert (first.failures, first.until_ms) == (1, NOW_MS + 500)
    assert (second.failures, second.until_ms) == (2, NOW_MS + 1_000)


def test_a_corrupt_segment_is_repeated_slowly_without_growth() -> None:
    first = fail(NO_BACK_OFF, FailureKind.CORRUPT)
    assert fail(first, FailureKind.CORRUPT).until_ms == first.until_ms == NOW_MS + 600_000


def test_a_changed_source_is_repeated_quickly_once_and_then_backs_off() -> None:
    first = fail(NO_BACK_OFF, FailureKind.SOURCE_CHANGED)
    assert first.until_ms == NOW_MS + 500
    assert fail(first, FailureKind.SOURCE_CHANGED).until_ms == NOW_MS + 1_000


def fail(previous: BackOff, kind: FailureKind) -> BackOff:
    return after_failure(previous, kind, "why", policy=POLICY, now_ms=NOW_MS, fraction=0.5)


def test_waiting_ends_at_the_time_itself() -> None:
    back_off = BackOff(1, NOW_MS)
    assert back_off.waits_at(NOW_MS - 1)
    assert not back_off.waits_at(NOW_MS)
    assert not NO_BACK_OFF.waits_at(0)


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (CorruptData("crc", source="x", position=3), FailureKind.CORRUPT, "corrupt_data"),
        (Conflict("cut", reason="SOURCE_CHANGED"), FailureKind.SOURCE_CHANGED, "conflict"),
        (Conflict("gap", reason="GAP"), FailureKind.TRANSIENT, "conflict"),
        (RetryLater("slow down"), FailureKind.TRANSIENT, "retry_later"),
        (ZeroDivisionError(), FailureKind.TRANSIENT, "internal"),
    ],
)
def test_errors_say_how_the_next_attempt_is_made(
    error: Exception, kind: FailureKind, word: str
) -> None:
    assert failure_kind(error) is kind
    assert error_kind(error) == word


def test_a_clock_that_is_set_back_keeps_nothing_waiting() -> None:
    year_ms = 365 * 86_400_000
    failed = after_failure(
        NO_BACK_OFF, FailureKind.CORRUPT, "bad", policy=POLICY, now_ms=NOW_MS, fraction=0.5
    )
    assert failed.waits_at(NOW_MS)
    assert failed.waits_at(NOW_MS + 599_999)
    assert failed.left_s(NOW_MS + 599_000) == 1.0
    for now_ms in (NOW_MS + 600_000, NOW_MS - year_ms):
        assert not failed.waits_at(now_ms)
        assert failed.left_s(now_ms) == 0.0
