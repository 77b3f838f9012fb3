"""The times at which a deleted segment's objects, and then its row, may be removed. Pure.

The pipeline's executors use this module, and have no metadata manager. The times in a row come from
the clocks of its writers, which may be a year off: pass a row that is `measured`, or at least
`not_ahead`.
"""

from __future__ import annotations

from dataclasses import replace

from rlm.control.surroundings import CopyLimits
from rlmm.segment import RemoteLogSegmentMetadata

ATTEMPT_MS_MAX = 24 * 3_600_000
"""The longest deadline of an attempt that is taken from a row."""


def objects_due_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    """The time from which a marked row's objects may be deleted, Unix time in ms; 0: at once.

    Readers that got a finished segment before its mark may still stream it; an unfinished one has
    no readers.
    """
    if was_finished(row):
        return row.event_timestamp_ms + round(limits.delete_delay_s * 1000)
    return 0


def delete_due_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    """The time when no request to a row's objects can be left, Unix time in ms (`CleanUp.due_ms`).

    Finished copies may have late requests too: a PUT repeated because no answer came may take
    effect after the delete, and its object must not outlive the row that names it.
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
    """The row as a correct clock would have written it, whose mark is known to be no later than
    `marked_ms`. Uploads began before that, and stop once the attempt's time is over.
    """
    return replace(
        row, event_timestamp_ms=marked_ms, upload_deadline_ms=marked_ms + _attempt_ms(row, limits)
    )


def not_ahead(
    row: RemoteLogSegmentMetadata, limits: CopyLimits, now_ms: int
) -> RemoteLogSegmentMetadata:
    """The row, with no time later than if it had been marked now."""
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
