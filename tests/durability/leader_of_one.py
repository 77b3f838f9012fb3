"""How a sole voter starts: recover the log, then lead a new epoch, in this order on disk."""

from __future__ import annotations

import logging
from pathlib import Path

from kafka_formats.errors import CorruptData
from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.disk import Disk
from rlmm.log.log_directory import LogDirectory
from rlmm.log.quorum_state_file import QuorumState

log = logging.getLogger(__name__)


def open_as_leader(
    disk: Disk,
    metadata_directory: Path,
    *,
    node_id: int,
    view_flushed_end: int,
    segment_bytes_max: int,
) -> tuple[LogDirectory, int]:
    """The recovered log and the epoch that this node leads from now on; blocks.

    The epoch is durable on return, before its first batch: no two lives of a node ever write the
    same (offset, epoch). CorruptData: the log or the quorum state is damaged where it must not be.
    """
    directory = LogDirectory.open(
        disk,
        metadata_directory,
        view_flushed_end=view_flushed_end,
        segment_bytes_max=segment_bytes_max,
    )
    try:
        if directory.cut is not None:
            log.warning(
                "the metadata log was cut at offset %d, %d bytes removed: %s. Nothing above it was "
                "known to be durable; a sole voter goes on",
                directory.cut.offset,
                directory.cut.bytes_removed,
                directory.cut.reason,
            )
        state = quorum_state.load(disk, directory.directory)
        if state is None and directory.log_end_offset > 0:
            raise CorruptData(
                "the log holds records, but the quorum state is missing. What to do: "
                f"{REPLACE_REPLICA}",
                source=str(directory.directory / quorum_state.QUORUM_STATE),
                position=0,
            )
        last_epoch = state.leader_epoch if state else 0
        if last_epoch < directory.last_epoch:
            # It is stored before an epoch's first batch, so no crash leaves this.
            raise CorruptData(
                f"the log holds epoch {directory.last_epoch}, the quorum state only knows of epoch "
                f"{last_epoch}: it is damaged or from another time. What to do: "
                f"{REPLACE_REPLICA}",
                source=str(directory.directory / quorum_state.QUORUM_STATE),
                position=0,
            )
        epoch = last_epoch + 1
        # Before the first batch: two lives must never write the same (offset, epoch).
        quorum_state.store(disk, directory.directory, QuorumState(epoch, leader_id=node_id))
    except BaseException:
        directory.close()
        raise
    return directory, epoch
