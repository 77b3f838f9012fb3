"""Snapshots of the view, written beside the metadata log, and a view's start from one (KIP-630)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from kafka_formats.errors import CorruptData
from rlmm.damaged_replica import REPLACE_REPLICA, needed_snapshot
from rlmm.metadata_log import MetadataLog, SnapshotId
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels, of_known_level
from rlmm.rows.snapshot_rows import from_proposals, to_proposals
from rlmm.view.view import View

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ViewAtOffset:
    """The logical rows at one metadata offset, in key order. Close `rows`."""

    snapshot: SnapshotId
    record_time_ms: int
    rows: Generator[tuple[bytes, bytes], None, None]


def view_now(view: View) -> ViewAtOffset:
    """The rows as they are at this call; later changes of the view do not show in them."""
    snapshot = SnapshotId(view.applied_offset + 1, view.applied_epoch)
    return ViewAtOffset(snapshot, view.record_time_ms, view.rows_in_key_order())


async def write_snapshot(
    metadata_log: MetadataLog,
    taken: ViewAtOffset,
    *,
    slice_rows: int,
    check_open: Callable[[], None],
) -> SnapshotId:
    """Write a snapshot of the view, taken at the end of a record batch; durable on return.

    Slices keep each step on the event loop short; after each, `check_open` may raise, and the
    unfinished snapshot is removed. Errors: those of `MetadataLog.begin_snapshot`.
    """
    # Closed also when the caller is cancelled: a scan left behind keeps the database open.
    with closing(taken.rows) as rows:
        sink = await metadata_log.begin_snapshot(
            taken.snapshot, last_contained_timestamp_ms=taken.record_time_ms
        )
        try:
            while part := list(islice(rows, slice_rows)):
                await sink.add(to_proposals(part))
                check_open()
        except BaseException:
            await sink.abandon()
            raise
        await sink.finish()
    return taken.snapshot


async def install_if_needed(
    metadata_log: MetadataLog, view: View, levels: FeatureLevels = LEVELS_KNOWN
) -> None:
    """Start the view from the newest snapshot if the view is empty, since a snapshot is shorter
    than the log, or if the log starts after the view's end.

    A damaged snapshot is set aside if an older one, or the log alone, is enough. CorruptData: no
    snapshot closes the gap between view and log. Refused: the snapshot's feature level is not in
    `levels`; the view is unchanged.
    """
    while (snapshot := _snapshot_to_install(metadata_log, view)) is not None:
        log.info("the view starts from the snapshot at offset %d", snapshot.end_offset)
        try:
            await _install(metadata_log, view, snapshot, levels)
        except CorruptData as error:
            if not await metadata_log.set_aside(snapshot, error):
                start = metadata_log.describe().log_start_offset
                raise needed_snapshot(error, start) from error
        else:
            return


def _snapshot_to_install(metadata_log: MetadataLog, view: View) -> SnapshotId | None:
    """The newest snapshot if the view needs one; else None. CorruptData: it needs one, but none
    reaches the log's start.
    """
    log_start = metadata_log.describe().log_start_offset
    snapshot = metadata_log.latest_snapshot()
    next_offset = view.applied_offset + 1
    if next_offset >= log_start and (next_offset > 0 or snapshot is None):
        return None
    if snapshot is None or snapshot.end_offset < log_start:
        raise CorruptData(
            f"the view ends at offset {view.applied_offset}, the metadata log starts at "
            f"{log_start}, and no snapshot closes the gap. What to do: {REPLACE_REPLICA}",
            source="metadata log",
        )
    return snapshot


async def _install(
    metadata_log: MetadataLog, view: View, snapshot: SnapshotId, levels: FeatureLevels
) -> None:
    def install() -> None:
        view.install_from(
            of_known_level(from_proposals(metadata_log.read_snapshot(snapshot)), levels),
            applied_offset=snapshot.end_offset - 1,
            epoch=snapshot.epoch,
        )

    await asyncio.get_running_loop().run_in_executor(None, install)
