"""Puts the files of a segment into a unit's directory: links, and the unit's own small files.

Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafka_formats.properties import encode_partition_metadata
from rlm.local_log.active_links import BESIDE, ActiveLink
from rlm.local_log.cut_file import copy_head, cut_beside, mark_aborts
from rlm.local_log.hold_unit import ROLL, mark_end
from rlm.local_log.log_dir import LocalPartition


def link_left(
    link: ActiveLink,
    local: LocalPartition | None,
    next_base: int,
    into: Path,
    *,
    cut_to: int | None,
) -> Path:
    """Link the files of an active segment that left the log, and the snapshot at its end; returns
    its `.log`. `cut_to`: bytes of the head to copy instead of linking the file; None: link it.
    """
    base, log = link.base_offset, into / link.log_path.name
    if cut_to is None:
        os.link(link.log_path, log)
    else:
        local = None  # its snapshot at this offset belongs to a different history
        copy_head(link.log_path, log, cut_to)
    beside = [link.path / segment_file_name(base, suffix) for suffix in BESIDE]
    if local is not None:
        beside.append(local.directory / segment_file_name(next_base, SNAPSHOT_SUFFIX))
    for path in beside:
        try:
            os.link(path, into / path.name)
        except OSError as error:  # EXDEV: the replica moved to another mount
            if error.errno not in (errno.ENOENT, errno.EXDEV):
                raise
    if cut_to is not None:
        cut_beside(log, next_base)
    mark_aborts(log)
    mark_end(into, next_base, log.stat())
    metadata = encode_partition_metadata(link.partition.topic_id)
    write(into / PARTITION_METADATA_FILE, metadata)
    return log


def link_files(local: LocalPartition, base: int, next_base: int, into: Path) -> None:
    """Link the `.log`, which must exist, and those of its index and snapshot files that exist; that
    at its end also as the mark of its roll (`hold_unit.is_roll_of`).
    """
    source = local.directory
    name = segment_file_name(base, LOG_SUFFIX)
    os.link(source / name, into / name)
    roll = segment_file_name(next_base, SNAPSHOT_SUFFIX)
    for name in (*(segment_file_name(base, suffix) for suffix in BESIDE), roll):
        with contextlib.suppress(FileNotFoundError):
            os.link(source / name, into / name)
    with contextlib.suppress(FileNotFoundError):
        os.link(into / roll, into / ROLL)
    mark_end(into, next_base, (into / segment_file_name(base, LOG_SUFFIX)).stat())
    write(into / LEADER_EPOCH_CHECKPOINT_FILE, _checkpoint(local, next_base))
    metadata = encode_partition_metadata(local.partition.topic_id)
    write(into / PARTITION_METADATA_FILE, metadata)


def _checkpoint(local: LocalPartition, next_base: int) -> bytes:
    """The leader epochs, with a head found in the batches, up to the epoch that follows the
    segment.
    """
    epochs = leader_epoch_checkpoint.truncate_from_end(local.leader_epochs, next_base + 1)
    return leader_epoch_checkpoint.encode(epochs)


def write(path: Path, data: bytes) -> None:
    """Write a file; on return its content is durable, its name is not."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
