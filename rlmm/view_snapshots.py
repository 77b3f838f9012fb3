"""Snapshots of the view beside the metadata log, and a view's start from one (KIP-630)."""

from __future__ import annotations

from itertools import islice

from rlmm.metadata_log import MetadataLog, SnapshotId
from rlmm.snapshot_rows import to_proposals
from rlmm.view import View


async def write_snapshot(log: MetadataLog, view: View, *, slice_rows: int) -> SnapshotId:
    """Write the logical rows as they are now, in key order, in slices; durable on return.

    The rows are those of one moment although the view goes on changing: the iterator is bound to
    it by its first row, which is taken before anything else can run.
    """
    snapshot = SnapshotId(view.applied_offset + 1, view.applied_epoch)
    record_time_ms = view.record_time_ms
    rows = to_proposals(view.rows_in_key_order())
    part = list(islice(rows, slice_rows))
    sink = await log.begin_snapshot(snapshot, last_contained_timestamp_ms=record_time_ms)
    try:
        while part:
            await sink.add(part)
            part = list(islice(rows, slice_rows))
    except BaseException:
        await sink.abandon()
        raise
    await sink.finish()
    return snapshot
