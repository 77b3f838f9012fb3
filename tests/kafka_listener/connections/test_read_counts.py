"""Lines about clients that are sent away or wait."""

from __future__ import annotations

import pytest

from kafka_listener.connections.read_counts import (
    LINES_KEPT_MAX,
    LINES_PER_S_MAX,
    REPEAT_S,
    ReadCounts,
)


def test_a_client_that_waits_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    counts = ReadCounts(lambda: now[0])
    for _ in range(2 * int(REPEAT_S) + 2):
        counts.not_available("the leader is away")
        now[0] += 0.5
    counts.not_available("another reason")
    lines = [each.getMessage() for each in caplog.records]
    assert [line.rsplit(": ")[-1] for line in lines] == [
        "the leader is away", "the leader is away", "another reason",
    ]  # fmt: skip
    assert counts.not_available_answers == 2 * int(REPEAT_S) + 3


def test_many_lines_of_a_second_are_counted_alone(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    counts = ReadCounts(lambda: now[0])
    for number in range(50):
        counts.refused(f"client {number}", "did something odd")
    assert len(caplog.records) == LINES_PER_S_MAX
    now[0] = 1.0
    counts.refused("client 49", "did something odd")
    assert len(caplog.records) == LINES_PER_S_MAX + 1, "it was not told before"
    for number in range(LINES_KEPT_MAX + 10):
        now[0] += 1
        counts.refused(f"client {number}", "did something odd")
    assert len(counts._told) == LINES_KEPT_MAX
