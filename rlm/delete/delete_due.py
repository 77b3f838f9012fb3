"""When the objects of a segment that is being deleted may go, and when its row. Pure.

In a module of its own: the pipeline's executors apply it, and have no metadata manager.

The times in a row are those of the clocks that wrote it, which may be a year off. Who can measure,
goes by a row that is `measured` or at least `not_ahead`.
"""

from __future__ import annotations

from dataclasses import replace

from rlm.control.surroundings import CopyLimits
from rlmm.segment import RemoteLogSegmentMetadata

ATTEMPT_MS_MAX = 24 * 3_600_000
"""No attempt's deadline is taken to be further off than this, whatever its row says."""


def objects_due_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    """From when on a marked row's objects may be deleted, ms since the epoch.

    Readers that were given a segment before it was marked may still stream it; nobody was given
    one that never was finished (0: at once).
    """
    if was_finished(row):
        return row.event_timestamp_ms + round(limits.delete_delay_s * 1000)
    return 0


def delete_due_ms(row: RemoteLogSegmentMetadata, limits: CopyLimits) -> int:
    """When nobody reads or writes a row's objects any more, ms since the epoch (`CleanUp.due_ms`).

    A finished copy sends nothing more, but has late requests, too: a PUT that was repeated for want
    of an answer may take effect after the objects went, and must not outlive the row that names it.
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
    """The row as a clock that is right writes it, of which `marked_ms` is known to be no earlier
    than its mark. Whoever uploads began before that and stops by the deadline's distance.
    """
    return replace(
        row,
        event_timestamp_ms=marked_ms,
        upload_deadline_ms=marked_ms + _attempt_ms(row, limits),
    )


def not_ahead(
    row: RemoteLogSegmentMetadata, limits: CopyLimits, now_ms: int
) -> RemoteLogSegmentMetadata:
    """The row, but nothing of it later than if it had been marked now."""
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
