"""Unfinished copies of delegated partitions: whose work they still are."""

from __future__ import annotations

from dataclasses import replace

from rlm.delegated.at_work import is_at_work
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.planner_facts import ME, NOW_MS, segment_row, uuid

ROW = replace(
    segment_row(1, 0, 9, segment_state=SegmentState.COPY_SEGMENT_STARTED),
    writer=ME,
    upload_deadline_ms=NOW_MS,
)


def at_work(
    row: RemoteLogSegmentMetadata, added_by: int | None = 1, overdue_ms: int = NOW_MS
) -> bool:
    added = None if added_by is None else uuid(added_by)
    return is_at_work(
        row, token=ROW.token, me=ME, added_by=added, session=uuid(1), overdue_ms=overdue_ms
    )


def test_a_copy_of_the_present_session_may_still_be_finished() -> None:
    assert at_work(ROW)
    assert at_work(ROW, None)


def test_a_copy_ends_with_its_claim_its_session_its_writer_or_its_time() -> None:
    assert not at_work(ROW, 2)
    assert not at_work(replace(ROW, writer=replace(ME, boot_counter=ME.boot_counter - 1)))
    assert not at_work(replace(ROW, writer=None))
    assert not at_work(ROW, overdue_ms=NOW_MS + 1)
    assert not at_work(replace(ROW, token=ROW.token - 1))


def test_a_segment_to_be_deleted_is_the_nodes_work() -> None:
    assert not at_work(replace(ROW, state=SegmentState.DELETE_SEGMENT_STARTED))
