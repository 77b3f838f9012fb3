"""Recovers a log directory after any crash.

A part of the log is known to have been durable, up to the *durable end*: the highest of the view's
flushed offset, the newest snapshot's end, the recovery-point checkpoint and the committed end.
Damage below it means a broken disk and stops the node; nothing is repaired. Records above it were
never acknowledged on the strength of this disk alone, and unsynced writes reach a disk in any
order: everything from the first damaged batch on is cut, intact batches after it included.

The rest may be in the page cache only (the process died, the machine did not). It is written again
before it may count as durable. A sync would not be enough: a sync that failed in the previous
process left its pages marked as clean, and the next sync reports success without writing them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, offset_checkpoint
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.log_names import parse_segment_file_name, segment_file_name
from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import TEMPORARY_SUFFIX, Disk, remove_files, replace_file
from rlmm.log.segment_file import SegmentFile, SegmentScan, scan_segment
from rlmm.log.snapshot_files import PART_SUFFIX, check_snapshot, list_snapshots, snapshot_file_name
from rlmm.metadata_log import SnapshotId

TOPIC = "__remote_log_metadata"
PARTITION_DIRECTORY = f"{TOPIC}-0"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
COMMITTED_END_FILE = "committed-end"
COMMITTED_END_VERSION = 1
OFFSET_DIGITS_MAX = 19
LOG_SUFFIX = ".log"
SMALLEST_RECORD_BYTES = 7


@dataclass(frozen=True, slots=True)
class LogCut:
    """A removed tail: everything from `offset` on. `epoch`: an upper bound of its epochs, -1 if
    unknown.
    """

    offset: int
    bytes_removed: int
    reason: str
    epoch: int

    @property
    def old_end_offset(self) -> int:
        """An upper bound of the log end before: no record is smaller than the smallest."""
        return self.offset + self.bytes_removed // SMALLEST_RECORD_BYTES + 1


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """Segments in order (at least one, the last is the active one), epochs, snapshots."""

    segments: tuple[SegmentFile, ...]
    epochs: Epochs
    snapshots: tuple[SnapshotId, ...]
    durable_end: int
    cut: LogCut | None


def load_recovery_point(disk: Disk, metadata_directory: Path) -> int:
    """Offset below which the log was durable when this was last written; 0: never written."""
    path = metadata_directory / RECOVERY_POINT_CHECKPOINT
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return 0
    try:
        return offset_checkpoint.parse(data, source=str(path)).get((TOPIC, 0), 0)
    except CorruptData as error:
        raise CorruptData(
            f"{error.detail}. Without this file it is unknown how much of the metadata log was "
            f"durable. What to do: {REPLACE_REPLICA}",
            source=error.source,
            position=error.position,
        ) from error


def store_recovery_point(disk: Disk, metadata_directory: Path, offset: int) -> None:
    """Record that everything below `offset` is durable. Only a synced end may be given."""
    replace_file(
        disk,
        metadata_directory / RECOVERY_POINT_CHECKPOINT,
        offset_checkpoint.encode({(TOPIC, 0): offset}),
    )


def load_committed_end(disk: Disk, metadata_directory: Path) -> int:
    """Offset below which the log was committed and durable here; 0: never written."""
    path = metadata_directory / COMMITTED_END_FILE
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return 0
    _, _, rest = data.partition(b"\n")
    number = rest.partition(b"\n")[0]
    digits = number.isdigit() and len(number) <= OFFSET_DIGITS_MAX
    if not digits or data != _encode_committed_end(int(number)):
        raise CorruptData(
            "unreadable. It has the offset below which this node never truncates the log: restore "
            "the data directory, or remove this file and start when the other voters are intact",
            source=str(path),
        )
    return int(number)


def store_committed_end(disk: Disk, metadata_directory: Path, offset: int) -> None:
    """Record that all below `offset` is committed; it is durable up to the recovery point."""
    replace_file(disk, metadata_directory / COMMITTED_END_FILE, _encode_committed_end(offset))


def _encode_committed_end(offset: int) -> bytes:
    text = f"{COMMITTED_END_VERSION}\n{offset}\n".encode()
    return text + f"{crc32c(text):08x}\n".encode()


def recover(disk: Disk, metadata_directory: Path, *, view_flushed_end: int) -> RecoveredLog:
    """Check the whole retained log, cut a damaged tail, make the rest durable. Blocks.

    `view_flushed_end` is the offset below which the view holds everything durably. CorruptData:
    damage below the durable end, or a log whose start no snapshot covers.
    """
    directory = metadata_directory / PARTITION_DIRECTORY
    disk.make_directory(directory)
    remove_files(disk, directory, suffix=PART_SUFFIX)
    remove_files(disk, directory, suffix=TEMPORARY_SUFFIX)
    remove_files(disk, metadata_directory, suffix=TEMPORARY_SUFFIX)
    snapshots = list_snapshots(disk, directory)
    snapshot_end = snapshots[-1].end_offset if snapshots else 0
    # The committed end is stored after the recovery point, so it is no higher unless that file was
    # lost or replaced.
    recovery_point = max(
        load_recovery_point(disk, metadata_directory), load_committed_end(disk, metadata_directory)
    )
    logged_end = max(view_flushed_end, recovery_point)
    durable_end = max(logged_end, snapshot_end)
    bases = _segment_bases(disk, directory)
    if not bases:
        return _start_empty(disk, directory, snapshots, durable_end)
    if bases[0] > snapshot_end:
        raise CorruptData(
            f"the metadata log starts at offset {bases[0]}, but no snapshot covers what is below "
            f"(newest snapshot: {snapshot_end}). What to do: {REPLACE_REPLICA}",
            source=str(directory),
        )
    # Only an installed snapshot ends above the recovery point. The log below it is being removed,
    # and a crash may have left any older part of it.
    installed = recovery_point < snapshot_end and view_flushed_end <= snapshot_end
    must_reach = 0 if installed else logged_end
    scans, cut = _scan(disk, directory, bases, durable_end, must_reach)
    if cut is not None:
        _remember_cut(disk, directory, cut)
        _apply_cut(disk, directory, bases, scans)
    if snapshots and (contradiction := _contradicts(scans, snapshots[-1])) is not None:
        if not installed:
            raise CorruptData(
                f"{contradiction}, and both were durable here. What to do: {REPLACE_REPLICA}",
                source=str(directory),
            )
        # Died between naming an installed snapshot and replacing the log by it.
        _check_readable(disk, directory, snapshots[-1])
        segments = tuple(scan.segment for scan in scans)
        fresh = restart_log(disk, directory, snapshot_end, segments)
        return RecoveredLog((fresh,), (), snapshots, snapshot_end, None)
    epochs = scans[-1].epochs
    _store_epochs(disk, directory, epochs)
    for scan in scans:
        if scan.segment.end_offset > durable_end:
            _write_anew(disk, scan.segment)
    disk.sync_directory(directory)
    return RecoveredLog(tuple(scan.segment for scan in scans), epochs, snapshots, durable_end, cut)


def _start_empty(
    disk: Disk, directory: Path, snapshots: tuple[SnapshotId, ...], durable_end: int
) -> RecoveredLog:
    start = snapshots[-1].end_offset if snapshots else 0
    if durable_end > start:
        raise CorruptData(
            f"the metadata log is gone: it was durable up to offset {durable_end} and the newest "
            f"snapshot ends at {start}. What to do: {REPLACE_REPLICA}",
            source=str(directory),
        )
    segment = SegmentFile(start, directory / segment_file_name(start, LOG_SUFFIX))
    disk.open_append(segment.path).close()
    disk.sync_directory(directory)
    return RecoveredLog((segment,), (), snapshots, durable_end, None)


def restart_log(
    disk: Disk, directory: Path, start: int, segments: tuple[SegmentFile, ...]
) -> SegmentFile:
    """Replace all `segments` by an empty log from `start`, a snapshot's end, on. Newest first, each
    durable: a crash leaves an older log that is too short, never a hole.
    """
    for segment in reversed(segments):
        disk.remove(segment.path)
        disk.sync_directory(directory)
    _store_epochs(disk, directory, ())
    fresh = SegmentFile(start, directory / segment_file_name(start, LOG_SUFFIX))
    disk.open_append(fresh.path).close()
    disk.sync_directory(directory)
    return fresh


def _segment_bases(disk: Disk, directory: Path) -> tuple[int, ...]:
    names = (parse_segment_file_name(name) for name in disk.list_names(directory))
    return tuple(sorted(name[0] for name in names if name is not None and name[1] == LOG_SUFFIX))


def _scan(
    disk: Disk, directory: Path, bases: tuple[int, ...], durable_end: int, must_reach: int
) -> tuple[list[SegmentScan], LogCut | None]:
    """Scans up to and including the first damaged segment, and the necessary cut."""
    expected = _load_epochs(disk, directory)
    scans: list[SegmentScan] = []
    epochs: Epochs = ()
    for index, base in enumerate(bases):
        path = directory / segment_file_name(base, LOG_SUFFIX)
        scan = scan_segment(path, base, disk.read(path), epochs, expected)
        end, damage = scan.segment.end_offset, scan.damage
        if damage is None and index + 1 < len(bases) and bases[index + 1] != end:
            damage = CorruptData(
                f"the segment ends at offset {end}, the next one starts at {bases[index + 1]}",
                source=str(path),
                position=scan.segment.size_bytes,
            )
        scans.append(scan)
        epochs = scan.epochs
        if damage is not None:
            _check_may_cut(damage, end, durable_end)
            later = (directory / segment_file_name(base, LOG_SUFFIX) for base in bases[index + 1 :])
            removed = scan.file_bytes - scan.segment.size_bytes + sum(map(disk.size, later))
            known = (*epochs, *(expected or ()))
            epoch = max((entry.epoch for entry in known), default=-1)
            return scans, LogCut(end, removed, str(damage), epoch)
    if scans[-1].segment.end_offset < must_reach:
        segment = scans[-1].segment
        missing = CorruptData(
            f"the log ends at offset {segment.end_offset}",
            source=str(segment.path),
            position=segment.size_bytes,
        )
        _check_may_cut(missing, segment.end_offset, durable_end)
    return scans, None


def _contradicts(scans: list[SegmentScan], newest: SnapshotId) -> str | None:
    """The reason why the snapshot can't be of this log. None: the log has the snapshot's last
    record, and so all of them (Raft's log matching), or begins after it.
    """
    if scans[0].segment.base_offset >= newest.end_offset:
        return None
    end = scans[-1].segment.end_offset
    if end < newest.end_offset:
        return f"the log ends at offset {end}, below its newest snapshot's {newest.end_offset}"
    last = newest.end_offset - 1
    epoch = epoch_for_offset(scans[-1].epochs, last)
    if epoch == newest.epoch:
        return None
    return (
        f"the log has offset {last} in epoch {epoch}, its newest snapshot in epoch {newest.epoch}"
    )


def _check_readable(disk: Disk, directory: Path, snapshot: SnapshotId) -> None:
    """Raise CorruptData unless the snapshot, which would replace the log, is readable: it may be
    damaged, or put there by hand.
    """
    try:
        check_snapshot(disk, directory / snapshot_file_name(snapshot))
    except CorruptData as error:
        raise CorruptData(
            f"{error.detail}. This snapshot would replace the log; nothing was changed. If the "
            f"file was put here by hand, remove it. What to do: {REPLACE_REPLICA}",
            source=error.source,
            position=error.position,
        ) from error


def _check_may_cut(damage: CorruptData, offset: int, durable_end: int) -> None:
    if offset < durable_end:
        raise CorruptData(
            f"{damage.detail}, although everything below offset {durable_end} was durable here. "
            "This is a damaged or replaced disk; nothing was changed. Check the disk. "
            f"What to do: {REPLACE_REPLICA}",
            source=damage.source,
            position=damage.position,
        ) from damage


def _remember_cut(disk: Disk, directory: Path, cut: LogCut) -> None:
    """Store the cut in the quorum state before anything is removed: this replica may have
    acknowledged it, and a crash in between must not forget. Of two cuts the higher counts.
    """
    state = quorum_state.load(disk, directory)
    if state is None:
        return
    # Without the checkpoint the removed records' epochs are unknown, but none is above the state's.
    highest = state.leader_epoch if _load_epochs(disk, directory) is None else max(cut.epoch, 0)
    known = (state.cut_epoch, state.cut_end_offset)
    epoch, end_offset = max(known, (highest, cut.old_end_offset))
    quorum_state.store(disk, directory, replace(state, cut_epoch=epoch, cut_end_offset=end_offset))


def _apply_cut(
    disk: Disk, directory: Path, bases: tuple[int, ...], scans: list[SegmentScan]
) -> None:
    # Newest first, each durable: a crash in between leaves a damaged tail again.
    for base in reversed(bases[len(scans) :]):
        disk.remove(directory / segment_file_name(base, LOG_SUFFIX))
        disk.sync_directory(directory)
    last = scans[-1].segment
    if scans[-1].file_bytes > last.size_bytes:
        disk.truncate(last.path, last.size_bytes)


def _load_epochs(disk: Disk, directory: Path) -> Epochs | None:
    """The epoch checkpoint; None if missing or unreadable: the batches have the same epochs."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        return leader_epoch_checkpoint.parse(disk.read(path), source=str(path))
    except (FileNotFoundError, CorruptData):
        return None


def _store_epochs(disk: Disk, directory: Path, epochs: Epochs) -> None:
    path = directory / LEADER_EPOCH_CHECKPOINT
    data = leader_epoch_checkpoint.encode(epochs)
    try:
        if disk.read(path) == data:
            return
    except FileNotFoundError:
        pass
    replace_file(disk, path, data)


def _write_anew(disk: Disk, segment: SegmentFile) -> None:
    """Copy a segment's bytes, from disk or page cache, into a new file, durably."""
    replace_file(disk, segment.path, disk.read(segment.path))
