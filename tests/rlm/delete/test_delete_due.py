"""When a marked row's objects go, and from when on no late request can bring one back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlm.control.surroundings import CopyLimits
from rlm.delete.delete_due import delete_due_ms, objects_due_ms
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.api.fakes import make_segment

MARKED_MS = 1_700_000_000_000
LIMITS = CopyLimits(upload_deadline_s=300.0, upload_margin_s=30.0, delete_delay_s=60.0)


def row(*, finished_at: int, deadline_ms: int = -1) -> RemoteLogSegmentMetadata:
    return replace(
        make_segment(0, SegmentState.DELETE_SEGMENT_STARTED),
        finished_at=finished_at, event_timestamp_ms=MARKED_MS, upload_deadline_ms=deadline_ms,
    )  # fmt: skip


def test_an_attempt_is_over_by_its_own_deadline() -> None:
    attempt = row(finished_at=-1, deadline_ms=MARKED_MS + 7_000)
    assert objects_due_ms(attempt, LIMITS) == 0, "nobody reads it"
    assert delete_due_ms(attempt, LIMITS) == MARKED_MS + 37_000


@pytest.mark.parametrize(("deadline_ms", "due_ms"), [(0, 30_000), (-1, MARKED_MS + 330_000)])
def test_an_attempt_without_a_deadline_has_the_longest(deadline_ms: int, due_ms: int) -> None:
    assert delete_due_ms(row(finished_at=-1, deadline_ms=deadline_ms), LIMITS) == due_ms


def test_a_finished_segment_stays_for_its_readers() -> None:
    finished = row(finished_at=5, deadline_ms=MARKED_MS + 7_000)
    assert objects_due_ms(finished, LIMITS) == delete_due_ms(finished, LIMITS) == MARKED_MS + 60_000
    at_once = replace(LIMITS, delete_delay_s=0.0)
    assert objects_due_ms(finished, at_once) == MARKED_MS
    assert delete_due_ms(finished, at_once) == MARKED_MS + 30_000, "a PUT may be repeated late"
