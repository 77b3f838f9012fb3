"""The directory of one held segment: its name, its files, and its end and epochs from its batches.

The end mark, an empty `.log` at the next base, has the modification time that the `.log` had when
it was linked. If the broker truncates a held file and appends to it, our hard link sees it: size or
modification time then differ from those recorded. Once such a file has left the broker's log, it
is no longer written to, and its end and epochs are read from its batches. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    append_entry,
    truncate_from_start,
)
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    segment_file_name,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.batch_headers import batch_headers
from rlm.local_log.committed_plan import NotCommittedError, Proof
from rlm.local_log.cut_file import copy_head, cut_beside, mark_aborts
from rlm.local_log.epoch_borders import EpochsContradictedError, check_epochs
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlm.local_log.replica_directory import read_small
from rlm.local_log.segment_facts import segment_epochs
from rlmm.log.disk import OsDisk, replace_file, sync_path
from rlmm.segment import OFFSET_MAX

WRITTEN = "the broker wrote to its file after it was held"
_CUT_OFF = "cut-off"
ROLL = "roll"
"""A second link to the producer snapshot that the broker wrote as it rolled the log at the unit's
end, made while the segment was part of the log.
"""
_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)(?:-\d+(?:-(\d+))?)?")


def is_unit_name(name: str) -> bool:
    """True for a unit's name; False for a half-made or half-removed unit or a foreign file."""
    return _NAME.fullmatch(name) is not None


def unit_name(base: int, next_base: int, log: os.stat_result, epochs: Epochs) -> str:
    """The name of a unit whose `.log` has that status, and its checkpoint those epochs."""
    name = f"{base:020d}-{next_base:020d}-{log.st_size}-{log.st_ino}"
    return f"{name}-{_first_known(base, epochs)}" if epochs else name


def log_of(path: Path) -> Path:
    """The `.log` in a unit's directory."""
    return path / (path.name[:20] + LOG_SUFFIX)


def found_unit(id_: TopicIdPartition, path: Path) -> Unit:
    """The unit in a directory, with its `doubt`. OSError; CorruptData or InvalidRequest if it has
    no epochs.
    """
    numbers = _NAME.fullmatch(path.name)
    assert numbers is not None, "a unit's name"
    base, next_base, size, known = map(int, numbers.groups(default="-1"))
    unit = read_unit(id_, path, base, next_base, size)
    if is_written(unit, unit.segment.log_path.stat()):
        return replace(unit, doubt=WRITTEN)
    try:
        _check(unit, known)
    except CorruptData as error:
        return replace(unit, doubt=str(error))
    return unit


def read_unit(id_: TopicIdPartition, path: Path, base: int, next_base: int, size: int) -> Unit:
    """The unit with these numbers in its name, also of a directory that has no name yet."""
    log = path / segment_file_name(base, LOG_SUFFIX)
    found = log.stat()
    checkpoint = path / LEADER_EPOCH_CHECKPOINT_FILE
    epochs = leader_epoch_checkpoint.parse(read_small(checkpoint), source=str(checkpoint))
    first_known = _first_known(base, epochs) if epochs else base
    inside = segment_epochs(epochs, first_known, next_base)
    sealed_at_ms = _sealed_at_ms(path, next_base, found)
    return Unit(
        partition=id_,
        segment=LocalSegment(base, log, size, next_base, sealed_at_ms, first_known),
        leader_epochs=inside,
        modified_ns=_marked_ns(path, next_base),
        alone=found.st_nlink == 1,
        followed_by=epochs[-1].epoch,
        cut_off=(path / _CUT_OFF).exists(),
    )


def is_written(unit: Unit, log: os.stat_result) -> bool:
    """True if its `.log` was written to since the unit's end and epochs were recorded."""
    return (log.st_size, log.st_mtime_ns) != (unit.segment.size_bytes, unit.modified_ns)


def mark_cut_off(unit: Unit, cut_off: bool) -> Unit:
    """The unit, marked as cut off or not, on disk too, for the next process. OSError: call it
    again later.
    """
    mark = unit.segment.log_path.with_name(_CUT_OFF)
    if not (unit.cut_off or cut_off) or (unit.cut_off == cut_off and mark.exists()):
        return unit
    if cut_off:
        mark.touch(mode=0o600)
    else:
        mark.unlink(missing_ok=True)
    sync_path(mark.parent)
    return replace(unit, cut_off=cut_off)


def mark_end(path: Path, next_base: int, log: os.stat_result) -> None:
    """Write the end mark of a unit whose `.log` has that status."""
    mark = path / segment_file_name(next_base, LOG_SUFFIX)
    mark.touch(mode=0o600)
    os.utime(mark, ns=(log.st_mtime_ns, log.st_mtime_ns))


class Batches(NamedTuple):
    """Epochs and end (exclusive) of a `.log`, read from its batches, and the bytes they take."""

    epochs: Epochs
    end: int
    size_bytes: int


def rewrite_from_batches(
    unit: Unit, proof: Proof, *, may_cut: bool
) -> tuple[str | None, Unit | None]:
    """Record the end and epochs read from the batches of a file that is no longer written to.

    Returns (new name, rest): name None if no offset is left to hold; rest None if nothing was cut
    off. The caller renames the unit's directory; until then it has the old name, so that the next
    process repeats this after a crash. NotCommittedError: see `committed_batches`. CorruptData;
    OSError.
    """
    log, base = unit.segment.log_path, unit.base_offset
    path = log.parent
    batches = scan_batches(log, base)
    whole = _with_batches(unit, batches)
    if whole is None:
        return None, None
    batches = committed_batches(whole, batches, proof, may_cut=may_cut)
    rest = rest_of(whole, batches)
    anew = whole if rest is None else _with_batches(unit, batches)
    assert anew is not None, "`committed_batches` raises if nothing is left"
    if rest is not None:
        aside = log.with_name(log.name + ".cut")
        copy_head(log, aside, batches.size_bytes)
        aside.replace(log)
    cut_beside(log, batches.end)  # also if a crash came after the line above
    mark_aborts(log)
    end, epochs = anew.next_base_offset, anew.leader_epochs
    # Only the modification time differs: the file was touched, or an earlier release recorded the
    # time of holding.
    is_as_held = (end, epochs) == (unit.next_base_offset, unit.leader_epochs)
    if is_as_held and unit.followed_by > epochs[-1].epoch:
        epochs = append_entry(epochs, unit.followed_by, end)
    checkpoint = path / LEADER_EPOCH_CHECKPOINT_FILE
    replace_file(OsDisk(), checkpoint, leader_epoch_checkpoint.encode(epochs))
    for suffix in (LOG_SUFFIX, SNAPSHOT_SUFFIX):  # they mark the former end
        for each in path.glob(f"*{suffix}"):
            if each.stem != log.stem:
                each.unlink()
    (path / ROLL).unlink(missing_ok=True)
    found = log.stat()
    mark_end(path, end, found)
    return unit_name(base, end, found, epochs), rest


def is_roll_of(unit: Unit, local: LocalPartition) -> bool:
    """True if the live log was never truncated below the unit's end since it was held: the snapshot
    of the roll there is still the same file. Truncations remove it (Kafka's
    ProducerStateManager.truncateAndReload), retention does so with the segment that begins there.
    """
    path = local.directory / segment_file_name(unit.next_base_offset, SNAPSHOT_SUFFIX)
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(unit.segment.log_path.with_name(ROLL)), os.stat(path))
    return False


def _with_batches(unit: Unit, batches: Batches) -> Unit | None:
    """The unit with the end and epochs of these batches; None if no offset is left to hold."""
    epochs, end, size = batches
    if unit.first_known_offset > unit.base_offset:  # DeleteRecords had reached into it
        epochs = truncate_from_start(epochs, unit.first_known_offset)
    if end <= unit.first_known_offset or not epochs:
        return None
    segment = replace(unit.segment, next_base_offset=end, size_bytes=size)
    return replace(unit, segment=segment, leader_epochs=epochs)


def committed_batches(whole: Unit, batches: Batches, proof: Proof, *, may_cut: bool) -> Batches:
    """The batches of a future unit that were surely committed, by `proof`: all of them or, if it
    `may_cut`, those below an end offset. NotCommittedError: there are none.
    """
    end = proof(whole)
    if end >= whole.next_base_offset:
        return batches
    if may_cut and end > whole.first_known_offset:
        log, base = whole.segment.log_path, whole.base_offset
        batches = scan_batches(log, base, zeros_may_follow=True, below=end)
        if batches.end > whole.first_known_offset:
            return batches
    raise NotCommittedError(whole)


def rest_of(whole: Unit, batches: Batches) -> Unit | None:
    """The part of a future unit after these batches, if there is one."""
    end, size = batches.end, whole.segment.size_bytes - batches.size_bytes
    if end == whole.next_base_offset:
        return None
    return replace(whole, segment=replace(whole.segment, base_offset=end, size_bytes=size))


def scan_batches(
    log: Path, base: int, *, zeros_may_follow: bool = False, below: int = OFFSET_MAX
) -> Batches:
    """The batches of a `.log`. CorruptData unless epochs and offsets ascend and the last batch is
    complete. `zeros_may_follow`: zeros after it are accepted, as in a file that the broker
    preallocated. Stops before the first batch that reaches offset `below`.
    """
    epochs: list[EpochEntry] = []
    end, read = base, 0
    for header, position in batch_headers(log, zeros_may_follow=zeros_may_follow):
        if header.last_offset >= below:
            return Batches(tuple(epochs), end, position)
        epoch = header.partition_leader_epoch
        if header.base_offset < end or (epochs and epoch < epochs[-1].epoch):
            why = f"offset {header.base_offset} of epoch {epoch} comes after offset {end - 1}"
            raise CorruptData(why, source=str(log), position=position)
        if not epochs or epoch > epochs[-1].epoch:
            epochs.append(EpochEntry(epoch, header.base_offset if epochs else base))
        end, read = header.last_offset + 1, position + header.size_bytes
    size = log.stat().st_size
    if read > size or (read < size and not zeros_may_follow):
        why = f"the last batch, which ends below offset {end}, is incomplete"
        raise CorruptData(why, source=str(log), position=read)
    return Batches(tuple(epochs), end, size)


def _first_known(base: int, epochs: Epochs) -> int:
    return max(base, epochs[0].start_offset)


def _check(unit: Unit, first_known: int) -> None:
    """Raise CorruptData if the unit's checkpoint contradicts its batches, or begins at a different
    offset than when the unit was held: `first_known` is from its name, -1 if the name has none.

    Only units that are held already are checked, not segments that are about to be held: a damaged
    batch contradicts an intact checkpoint too, and its segment has to be held nevertheless.
    """
    log = unit.segment.log_path
    source = str(log.with_name(LEADER_EPOCH_CHECKPOINT_FILE))
    try:
        check_epochs(log.parent, (unit.base_offset,), unit.leader_epochs)
    except EpochsContradictedError as error:
        raise CorruptData(str(error), source=source, position=0) from None
    if first_known not in (-1, unit.first_known_offset):
        raise CorruptData(
            f"its epochs begin at offset {unit.first_known_offset}, but began at {first_known} "
            "when it was held",
            source=source,
            position=0,
        )


def _sealed_at_ms(path: Path, next_base: int, log: os.stat_result) -> int:
    """The time of the roll, as in `replica_directory`: that of the snapshot at the next base."""
    at = log.st_mtime_ns
    with contextlib.suppress(FileNotFoundError):
        at = max(at, (path / segment_file_name(next_base, SNAPSHOT_SUFFIX)).stat().st_mtime_ns)
    return at // 1_000_000


def _marked_ns(path: Path, next_base: int) -> int:
    """The time on the end mark; -1 without one."""
    try:
        return (path / segment_file_name(next_base, LOG_SUFFIX)).stat().st_mtime_ns
    except FileNotFoundError:
        return -1
