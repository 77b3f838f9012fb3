"""When the objects of a segment that is being deleted may go, and when its row. Pure.

In a module of its own: the pipeline's executors apply it, and have no metadata manager.
"""

from __future__ import annotations

from rlm.limits import CopyLimits
from rlmm.segment import RemoteLogSegmentMetadata


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


def was_finished(row: RemoteLogSegmentMetadata) -> bool:
    """True for a row that reached COPY_SEGMENT_FINISHED before it was marked for deletion."""
    return row.finished_at >= 0
