"""A new cluster's first snapshot, made from its predecessor's, whose quorum is lost. Blocks."""

from __future__ import annotations

from pathlib import Path

from kafka_formats.control_record import ControlType, parse_control_key
from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from kafka_formats.record_batch import iter_records
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import Disk
from rlmm.log.quorum_records import Voter, decode_snapshot_header
from rlmm.log.quorum_state_file import QuorumState
from rlmm.log.snapshot_files import (
    SnapshotWriter,
    parse_snapshot_file_name,
    read_snapshot,
    snapshot_batches,
)
from rlmm.metadata_log import SnapshotId
from rlmm.rows.feature_level import LEVELS_KNOWN, of_known_level
from rlmm.rows.restart_rows import restarted
from rlmm.rows.snapshot_rows import from_proposals, to_proposals


def snapshot_id_of(path: Path) -> SnapshotId:
    """The id in a snapshot file's name. InvalidRequest: a different name, or an empty snapshot."""
    snapshot = parse_snapshot_file_name(path.name)
    if snapshot is None or snapshot.end_offset == 0:
        raise InvalidRequest(
            f"{path.name!r} is not a snapshot of a metadata log: give a file with the node's name "
            "for it, `<20 digits>-<10 digits>.checkpoint`",
            field="--from-snapshot",
        )
    return snapshot


def write_restart_snapshot(
    disk: Disk, directory: Path, source: Path, voters: tuple[Voter, ...]
) -> SnapshotId:
    """Make the log in `directory` begin where the snapshot `source` ends, in a later epoch, with
    the new voters. Durable on return. CorruptData: the source fails its checks, and the directory
    stays unformatted. Refused: the source has a feature level that this program does not know, so
    it would restart the rows by wrong rules.
    """
    snapshot = snapshot_id_of(source)
    try:
        _rewrite(disk, directory, source, snapshot, voters)
    except CorruptData as error:
        raise CorruptData(
            f"{error.detail}. The snapshot is damaged; nothing was written. What to do: give "
            "a different one that is whole, from a lost node or an older one of the store",
            source=error.source,
            position=error.position,
        ) from error
    except Refused as error:
        raise Refused(
            f"{source.name} can't be used here: {error}. Nothing was written or taken over"
        ) from error
    # The next epoch is above the snapshot's, so that no (offset, epoch) is ever written twice.
    quorum_state.store(disk, directory, QuorumState(snapshot.epoch))
    return snapshot


def _rewrite(
    disk: Disk, directory: Path, source: Path, snapshot: SnapshotId, voters: tuple[Voter, ...]
) -> None:
    writer = SnapshotWriter(
        disk,
        directory,
        snapshot,
        last_contained_timestamp_ms=_timestamp_ms(disk, source),
        voters=voters,
    )
    try:
        rows = of_known_level(from_proposals(read_snapshot(disk, source)), LEVELS_KNOWN)
        writer.add(to_proposals(restarted(rows, end_offset=snapshot.end_offset)))
    except BaseException:
        writer.abandon()
        raise
    writer.finish()


def _timestamp_ms(disk: Disk, path: Path) -> int:
    """The time of the last record in a snapshot, from its header."""
    source = str(path)
    for batch in snapshot_batches(disk, path):
        for record in iter_records(batch.data, source=source, position=batch.position):
            if not batch.header.is_control:
                break
            kind = parse_control_key(record.key, source=source, position=batch.position)
            if kind == ControlType.SNAPSHOT_HEADER:
                return decode_snapshot_header(record.value or b"", source=source)
        break
    raise CorruptData("no snapshot header", source=source)
