"""The core's initial state, read from the recovered, synced disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from kafka_formats.control_record import ControlType, parse_control_key
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.record_batch import iter_records
from rlmm.damaged_replica import REPLACE_REPLICA, needed_snapshot
from rlmm.log import quorum_records
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import Disk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.quorum_state_file import QuorumState
from rlmm.log.snapshot_files import snapshot_voters
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.config import Place, QuorumConfig
from rlmm.quorum.damaged_snapshots import set_aside_text
from rlmm.quorum.framing import voter_set
from rlmm.raft.actions import LogCut, PersistedState
from rlmm.raft.core import RaftCore
from rlmm.raft.messages import NONE_ID, ReplicaKey, VoterSet
from rlmm.raft.replica import InitialState, StoredSnapshot

_READ_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


class Replica(NamedTuple):
    """A recovered log, the core that knows it, and the threads that write and read it."""

    core: RaftCore
    directory: LogDirectory
    disk: Disk
    writer: ThreadPoolExecutor
    reader: ThreadPoolExecutor


def open_replica(
    place: Place,
    config: QuorumConfig,
    *,
    view_flushed_end: int,
    segment_bytes_max: int,
    jitter: Callable[[], float],
) -> tuple[LogDirectory, RaftCore]:
    """The recovered log and its core, not started; blocks. Errors: `recover`, `initial_state`."""
    directory = LogDirectory.open(
        place.disk,
        place.metadata_directory,
        view_flushed_end=view_flushed_end,
        segment_bytes_max=segment_bytes_max,
    )
    try:
        initial = initial_state(
            place.disk,
            directory,
            format_voters=config.format_voters,
            view_flushed_end=view_flushed_end,
        )
        _keep_voters(directory, initial)
    except BaseException:
        directory.close()
        raise
    core = RaftCore(
        config.key,
        initial,
        settings=config.settings,
        jitter=jitter,
        peers=tuple(node_id for node_id, _, _ in config.bootstrap),
        incarnation=config.incarnation,
        endpoints=config.endpoints,
    )
    return directory, core


def _keep_voters(directory: LogDirectory, initial: InitialState) -> None:
    """Voter sets in the log count from here on, as if synced in this life (`disk_queue.py`): the
    last one may have ended between the sync and the recovery point.
    """
    if initial.voter_sets:
        directory.store_recovery_point()


def initial_state(
    disk: Disk, directory: LogDirectory, *, format_voters: VoterSet, view_flushed_end: int
) -> InitialState:
    """Read it; blocks. CorruptData: the quorum state or a snapshot cannot be trusted."""
    stored = quorum_state.load(disk, directory.directory)
    if stored is None and directory.log_end_offset > 0:
        raise CorruptData(
            "the log holds records, but the quorum state is missing: this node may have voted. "
            f"What to do: {REPLACE_REPLICA}",
            source=str(directory.directory / quorum_state.QUORUM_STATE),
        )
    snapshots = directory.snapshots()
    for each in snapshots:
        _check_end(directory, each)
    sets = _voter_sets(directory)
    sets.extend(_snapshot_voter_set(disk, directory))
    snapshots = directory.snapshots()
    start = directory.log_start_offset
    return InitialState(
        quorum=None if stored is None else persisted(stored),
        log_start_offset=start,
        log_start_epoch=_start_epoch(directory, snapshots),
        log_end_offset=directory.log_end_offset,
        epochs=tuple((entry.epoch, entry.start_offset) for entry in directory.epochs),
        snapshots=tuple(
            StoredSnapshot(each, disk.size(directory.snapshot_path(each)))
            for each in snapshots
            if each.end_offset > 0
        ),
        voter_sets=tuple(sorted(set(sets))),
        format_voters=format_voters,
        # A batch is committed whole; the view may have been flushed in the middle of one.
        committed_offset=directory.border_from(
            min(max(view_flushed_end, directory.committed_end), directory.log_end_offset)
        ),
        cut=_cut(directory),
    )


def _snapshot_voter_set(disk: Disk, directory: LogDirectory) -> tuple[tuple[int, VoterSet], ...]:
    """The set of the newest snapshot, at its last offset. Damaged ones that the log does not need
    are set aside; without any, it begins at 0. CorruptData: the log needs a damaged one.
    """
    while (newest := directory.snapshots()[-1:]) and newest[0].end_offset > 0:
        try:
            voters = snapshot_voters(disk, directory.snapshot_path(newest[0]))
        except CorruptData as error:
            if not directory.set_aside(newest[0]):
                raise needed_snapshot(error, directory.log_start_offset) from error
            log.error("%s", set_aside_text(directory.snapshot_path(newest[0]), error))
        else:
            return ((newest[0].end_offset - 1, voter_set(voters)),)
    return ()


def _check_end(directory: LogDirectory, snapshot: SnapshotId) -> None:
    """Raise CorruptData unless the snapshot ends where a record batch does: the next is fetched."""
    border = directory.border_from(snapshot.end_offset)
    if border != snapshot.end_offset:
        raise CorruptData(
            f"the snapshot ends inside the record batch that ends at offset {border}: no other "
            "node could go on behind it. If the file was put here by hand, remove it. "
            f"What to do: {REPLACE_REPLICA}",
            source=str(directory.snapshot_path(snapshot)),
        )


def _start_epoch(directory: LogDirectory, snapshots: tuple[SnapshotId, ...]) -> int:
    start = directory.log_start_offset
    for snapshot in snapshots:
        if snapshot.end_offset == start:
            return snapshot.epoch
    return directory.epochs[0].epoch if directory.epochs else 0


def _cut(directory: LogDirectory) -> LogCut | None:
    cut = directory.cut
    if cut is None:
        return None
    log.warning(
        "the metadata log was cut at offset %d, %d bytes removed: %s. Nothing above it was known "
        "to be durable",
        cut.offset,
        cut.bytes_removed,
        cut.reason,
    )
    return LogCut(max(cut.epoch, 0), cut.old_end_offset)


def _voter_sets(directory: LogDirectory) -> list[tuple[int, VoterSet]]:
    found: list[tuple[int, VoterSet]] = []
    position, end = directory.log_start_offset, directory.log_end_offset
    while position < end:
        batches = directory.read(position, end, bytes_max=_READ_BYTES)
        if not batches:
            break
        for batch in batches:
            position = batch.header.last_offset + 1
            if not batch.header.is_control:
                continue
            for record in iter_records(batch.data, source=batch.source, position=batch.position):
                kind = parse_control_key(record.key, source=batch.source, position=batch.position)
                if kind == ControlType.KRAFT_VOTERS:
                    voters = quorum_records.decode_voters(record.value or b"", source=batch.source)
                    found.append((record.offset, voter_set(voters)))
    return found


def persisted(state: QuorumState) -> PersistedState:
    """The file's content in the core's form."""
    voted = None
    if state.voted_id != quorum_state.NOBODY:
        directory = state.voted_directory_id
        voted = ReplicaKey(state.voted_id, "" if directory == ZERO_UUID else str(directory))
    cut = None
    if state.cut_end_offset != quorum_state.NOBODY:
        cut = LogCut(state.cut_epoch, state.cut_end_offset)
    return PersistedState(state.leader_epoch, state.leader_id, voted, cut)


def stored(state: PersistedState) -> QuorumState:
    """The core's state in the file's form."""
    voted = state.voted or ReplicaKey(NONE_ID)
    return QuorumState(
        state.epoch,
        leader_id=state.leader_id,
        voted_id=voted.node_id,
        voted_directory_id=Uuid.parse(voted.directory_id) if voted.directory_id else ZERO_UUID,
        cut_epoch=state.cut.epoch if state.cut else quorum_state.NOBODY,
        cut_end_offset=state.cut.old_end_offset if state.cut else quorum_state.NOBODY,
    )
