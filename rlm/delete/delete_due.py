"""The times at which objects of a segment being deleted, and its row, may go. Pure.

The pipeline's executors use this module, and have no metadata manager. The times in a row come from
the clocks of its writers, which may be a year off: use a row that is `measured`, or at least
`not_ahead`.
"""

from __future__ import annotations

from dataclasses import replace

from rlm.control.surroundings import CopyLimits
from rlmm.segment import RemoteLogSegmentMetadata

ATTEMPT_MS_MAX = 24 * 3_600_000
"""The longest deadline of an attempt that a row is believed."""


def objects_due_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    """The time from which a marked row's objects may be deleted, ms since the epoch; 0: at once.

    Readers that got a segment before its mark may still stream it; an unfinished one has no
    readers.
    """
    if was_finished(row):
        return row.event_timestamp_ms + round(limits.delete_delay_s * 1000)
    return 0


def delete_due_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    """The time when no request to a row's objects is left, ms since the epoch (`CleanUp.due_ms`).

    Finished copies have late requests too: a PUT repeated for lack of an answer may take effect
    after the delete, and must not outlive the row that names the object.
    """
    margin_ms = round(limits.upload_margin_s * 1000)
    if was_finished(row):
        return max(objects_due_ms(row, limits), row.event_timestamp_ms + margin_ms)
    deadline_ms = row.upload_deadline_ms
    if deadline_ms < 0:
        deadline_ms = row.event_timestamp_ms + round(limits.upload_deadline_s * 1000)
    return deadline_ms + margin_ms


def measured(
    row: RemoteLogSegmentMetadata, limits: CopyLimits, marked_ms: int
) -> RemoteLogSegmentMetadata:
    """The row as a right clock would have written it; its mark is known to be no later than
    `marked_ms`. Uploads began before that, and stop after the deadline's distance.
    """
    return replace(
        row, event_timestamp_ms=marked_ms, upload_deadline_ms=marked_ms + _attempt_ms(row, limits)
    )


def not_ahead(
    row: RemoteLogSegmentMetadata, limits: CopyLimits, now_ms: int
) -> RemoteLogSegmentMetadata:
    """The row with no time later than if it had been marked now."""
    return replace(
        row,
        event_timestamp_ms=min(row.event_timestamp_ms, now_ms),
        upload_deadline_ms=min(row.upload_deadline_ms, now_ms + _attempt_ms(row, limits)),
    )


def _attempt_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    told_ms = row.upload_deadline_ms - row.event_timestamp_ms
    return max(round(limits.upload_deadline_s * 1000), min(told_ms, ATTEMPT_MS_MAX))


def was_finished(row: RemoteLogSegmentMetadata) -> bool:
    """True for a row that reached COPY_SEGMENT_FINISHED before it was marked for deletion."""
    return row.finished_at >= 0
