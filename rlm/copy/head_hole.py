"""Decides whether a log's missing first files were removed by retention, or are damage of this
replica.

The broker's own log start shows it: local retention and DeleteRecords raise it together with the
removal (UnifiedLog.deleteSegments), and the first leader epoch with it; other removals change
neither. Its log-start-offset-checkpoint lags by up to a minute and is raised by DeleteRecords only,
so it proves no damage. The first leader epoch proves nothing about existing files: its checkpoint
may have been lost and begun again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.leader_epoch_checkpoint import Epochs, truncate_from_start
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    segment_file_name,
)
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.asked_by_name import log_start_of
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.leadership.leadership import LocalLogStart, NotLeading
from rlm.local_log.log_dir import LocalSegment
from rlm.local_log.lost_epochs import EpochFinder
from rlm.reconcile.adoption_plan import OnMachine
from rlmm.partition_state import PartitionState


def files_wanted_from(work: PartitionWork, broker: BrokerPort | None) -> int:
    """The offset from which on the log should have files, according to the known log start."""
    if broker is not None or work.local is None or not work.local.leader_epochs:
        return work.log_start_said
    return max(work.log_start_said, work.local.leader_epochs[0].start_offset)


def on_machine(work: PartitionWork, broker: BrokerPort | None) -> OnMachine:
    """An upper bound of the offsets that can be copied from this machine. A first epoch above the
    broker's lowest offset proves nothing, since the checkpoint may have been lost and begun again;
    one below its first file is where a never copied partition begins (as in `copy_plan`).
    """
    local = work.local
    assert local is not None, "only partitions on this disk are asked for"
    lowest = max(local.segments[0].base_offset, work.log_start_said)
    start, wanted_from = min(lowest, local.local_log_start_offset), files_wanted_from(work, broker)
    begins = max(wanted_from, local.leader_epochs[0].start_offset) if local.leader_epochs else start
    held = (
        (max(unit.base_offset, unit.first_known_offset), unit.next_base_offset - 1)
        for unit in work.kept
    )
    files_from = local.local_log_start_offset
    return OnMachine(min(start, begins), min(start, wanted_from), tuple(held), files_from)


async def log_start_moved(work: PartitionWork, broker: BrokerPort | None) -> bool | Wait:
    """True if the broker reports a higher log start than was known; a Wait if it does not answer,
    or does not lead.
    """
    if broker is None or work.local is None:
        return False
    answer = await log_start_of(broker, work.local)
    if isinstance(answer, LocalLogStart):
        moved = answer.offset > work.log_start_said
        work.log_start_heard = max(work.log_start_heard, answer.offset)
        return moved
    if isinstance(answer, NotLeading):
        return Wait(WhyNot.NOT_LEADER, "this node's broker does not lead the partition")
    return Wait(
        WhyNot.BROKER_UNAVAILABLE,
        "files at the head of the log are gone, and the broker's log start is not known: "
        f"{answer.reason}",
    )


async def learns_epochs(work: PartitionWork, state: PartitionState, finder: EpochFinder) -> bool:
    """True if the epochs of a lost checkpoint were found in the batches. The broker's log start is
    needed first: after DeleteRecords a checkpoint looks the same as a lost one.
    """
    if work.local is None:
        return False
    found = await finder.find(work.local, state.lineage, state.next_offset, work.log_start_said)
    return found is not None and work.learn(found)


def stand_in(directory: Path, live: Path, lineage: Epochs, base: int, end: int) -> LocalSegment:
    """Make an empty segment [base, end) in a directory of its own, so that a copy can be made from
    it; fetched batches fill it. `live` is the replica's directory. Blocks.
    """
    path = directory / segment_file_name(base, LOG_SUFFIX)
    # A batch that begins below `base` is fetched whole, but epochs are known from `base` on.
    segment = LocalSegment(base, path, 0, end, first_known_offset=base)
    if segment.log_path.exists() and _names(directory, end).exists():
        return segment
    remove(directory)
    directory.mkdir(parents=True)
    (directory / PARTITION_METADATA_FILE).write_bytes((live / PARTITION_METADATA_FILE).read_bytes())
    epochs = leader_epoch_checkpoint.encode(truncate_from_start(lineage, base))
    (directory / LEADER_EPOCH_CHECKPOINT_FILE).write_bytes(epochs)
    snapshot = segment_file_name(end, SNAPSHOT_SUFFIX)
    if (live / snapshot).exists():
        (directory / snapshot).write_bytes((live / snapshot).read_bytes())
    _names(directory, end).write_bytes(b"")
    segment.log_path.write_bytes(b"")
    return segment


def _names(directory: Path, base: int) -> Path:
    return directory / segment_file_name(base, LOG_SUFFIX)


def remove(directory: Path) -> None:
    """Remove the directory with its files. Errors are ignored: `stand_in` makes it again."""
    shutil.rmtree(directory, ignore_errors=True)
