"""A peer that repeats a mistake a thousand times a second fills no disk."""

from __future__ import annotations

import pytest

from rlmm.quorum.troubles import KINDS_MAX, REPEATED_AFTER_MS, CoreWarnings


def test_a_kind_of_line_is_said_once_a_minute_and_then_how_often_it_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [5]
    warnings = CoreWarnings(lambda: clock[0])
    for offset in range(1_000):
        warnings.warn(f"node 2 claims offset {offset}")
        warnings.warn("something else")
    assert [record.message for record in caplog.records] == [
        "node 2 claims offset 0",
        "something else",
    ]
    clock[0] += REPEATED_AFTER_MS
    warnings.warn("node 2 claims offset 1000")
    clock[0] += REPEATED_AFTER_MS
    warnings.warn("node 2 claims offset 1001")
    assert [record.message for record in caplog.records[2:]] == [
        "node 2 claims offset 1000 (and 999 more like it)",
        "node 2 claims offset 1001",
    ]


def test_what_is_remembered_is_bounded() -> None:
    warnings = CoreWarnings(lambda: 0)
    for number in range(KINDS_MAX * 2):
        warnings.warn("x" * number)
    assert len(warnings._kinds) == KINDS_MAX
