"""Cuts snapshots and log once a new snapshot is complete.

A snapshot that a replica downloads is kept, and the log from its end on. Without the file the
replica would start over with each new snapshot. Without the log it would need the newest snapshot
as soon as it has its own: for ever, if a download takes as long as the time between two snapshots.
Both have bounds (`LogLimits`), so that a replica that never finishes does not fill this node's
disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlmm.log.log_directory import LogDirectory
from rlmm.log.log_limits import LogLimits
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.troubles import DOWNLOADS, OLD_SNAPSHOTS, QuorumTroubles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogCutDone:
    """The log after a cut. `interrupted`: snapshots removed during a download. `failure`: the error
    of a removal.
    """

    log_start_offset: int
    removed: tuple[SnapshotId, ...]
    interrupted: tuple[SnapshotId, ...]
    failure: OSError | None


def held(
    taken: Sequence[SnapshotId],
    wanted: Sequence[SnapshotId],
    *,
    log_bytes_from: Callable[[int], int],
    limits: LogLimits,
) -> tuple[SnapshotId, ...]:
    """The `wanted` snapshots that are kept, and with them the log from their ends. Both arguments
    are sorted.

    The oldest come first: their downloads are nearest to the end. One whose log has grown too large
    makes room for the others: its replica is slower than this log grows.
    """
    newest = taken[-max(limits.snapshots_kept, 1) :]
    found: list[SnapshotId] = []
    beside = 0
    for snapshot in wanted:
        if log_bytes_from(snapshot.end_offset) > limits.download_log_bytes_max:
            continue
        if snapshot not in newest:
            if snapshot not in taken or beside == limits.downloads_held_max:
                continue
            beside += 1
        found.append(snapshot)
    return tuple(found)


def cut_log(
    directory: LogDirectory, up_to: int, wanted: Sequence[SnapshotId], limits: LogLimits
) -> LogCutDone:
    """Cut the log below `up_to`, which a snapshot and the flushed view include, and remove old
    snapshots; `wanted` ones are kept within bounds. In the writer's thread. RetryLater: the log
    stopped.
    """
    before = directory.snapshots()
    stay = held(before, wanted, log_bytes_from=directory.bytes_from, limits=limits)
    # The snapshot from which `up_to` was computed may have been set aside since.
    covered = before[-1].end_offset if before else 0
    up_to = min((up_to, covered, *(snapshot.end_offset for snapshot in stay)))
    directory.cut_start(up_to, keep_bytes=limits.retain_bytes_max)
    failure = None
    try:
        directory.remove_old_snapshots(keep=limits.snapshots_kept, held=stay)
    except OSError as error:
        failure = error  # the log start has moved all the same, and the core must learn of it
    left = directory.snapshots()
    removed = tuple(snapshot for snapshot in before if snapshot not in left)
    interrupted = tuple(snapshot for snapshot in removed if snapshot in wanted)
    return LogCutDone(directory.log_start_offset, removed, interrupted, failure)


def tell_of_cut(troubles: QuorumTroubles, directory: LogDirectory, done: LogCutDone) -> None:
    """Put problems of the cut into the status; on the event loop."""
    if done.interrupted:
        ends = ", ".join(str(snapshot.end_offset) for snapshot in done.interrupted)
        text = (
            f"a replica is too slow for the snapshot that it downloads (up to offset {ends}): that "
            "is removed, since the log after it grew too large or others are downloaded, and the "
            "replica starts over. Check its network and disk; `strandline quorum describe` shows "
            "which one lags"
        )
        log.warning("%s", text)
        troubles.repeated(DOWNLOADS, text)
    if done.failure is None:
        troubles.over(OLD_SNAPSHOTS)
        return
    troubles.began(
        OLD_SNAPSHOTS,
        "old snapshots could not be removed, and are kept until the next one is taken: "
        f"{done.failure}. Check the permissions and the disk of {directory.directory}",
    )
