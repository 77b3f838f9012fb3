"""A directory of held segments, on the same mount as a log directory and never inside one.

`<hold directory>/<node>/<topic>-<partition>/<topic id>/<unit>/` (`<node>`: `hold_names.hold_name`)
is a unit: hard links to the segment's files and producer snapshots, `partition.metadata`, the
lineage up to the unit's end, and the end mark, an empty `.log` at the next base, which marks the
segment sealed (`hold_unit.py`).
Its name is `<base>-<next base>-<size>-<inode>-<first known offset>`; earlier releases left out the
last one or two. The last is there because the lineage's file has no checksum, and no batch shows
when its first entry begins too high.
A unit is made under a temporary name and renamed, and renamed again before its removal, so that a
crash leaves no half unit. Everything here blocks; callers use a thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import Refused, StrandlineError
from kafka_formats.leader_epoch_checkpoint import (
    append_entry,
    epoch_for_offset,
    truncate_from_start,
)
from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    segment_file_name,
)
from kafka_formats.properties import encode_partition_metadata, parse_partition_metadata
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.active_links import ActiveLink, is_in_a_log
from rlm.local_log.committed_plan import NoRoomError, Proof
from rlm.local_log.hold_plan import Unit
from rlm.local_log.hold_tree import directories, directory_of, names
from rlm.local_log.hold_unit import (
    Batches,
    committed_batches,
    found_unit,
    is_roll_of,
    is_unit_name,
    is_written,
    log_of,
    read_unit,
    rest_of,
    rewrite_from_batches,
    scan_batches,
    unit_name,
)
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlm.local_log.replica_directory import read_small
from rlm.local_log.unit_files import link_files, link_left, write
from rlmm.log.disk import OsDisk, replace_file, sync_path

_ASIDE, _GONE = ".making-", ".removing-"
PROBE = ".probe"
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Unread:
    """A unit that cannot be used; `why` says the reason and what to do."""

    partition: TopicIdPartition
    why: str


@dataclass(frozen=True, slots=True)
class HeldFound:
    """Units of a hold directory."""

    units: tuple[Unit, ...]
    unread: tuple[Unread, ...]


@dataclass(frozen=True, slots=True)
class RebuiltUnit:
    """A unit made from the batches of its file; `rest`: the part that nothing proves committed, and
    that the unit therefore leaves out.
    """

    unit: Unit | None
    rest: Unit | None = None


@dataclass(frozen=True, slots=True)
class HoldDirectory:
    """The hold directory of a mount. `log_dirs`: the log directories on that mount, whose segments
    are held here.
    """

    path: Path
    log_dirs: tuple[Path, ...]

    def prepare(self) -> None:
        """Make the directory and try a link from each log directory. Refused, with an instruction,
        if one fails.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                f"{self.path} cannot be made ({error.strerror}): make its parent and give it to "
                "the node's user, or correct hold.dirs"
            ) from error
        for log_dir in self.log_dirs:
            try_link(log_dir, self.path, self.path)

    def sweep(self) -> None:
        """Remove units that a crash or a failed disk left half-made or half-removed. OSError, but
        only after all were tried.
        """
        trouble: OSError | None = None
        for _, parent in directories(self.path):
            for entry in names(parent):
                if not entry.startswith((_ASIDE, _GONE)):
                    continue
                try:
                    remove_unit(parent / entry)
                except OSError as error:
                    trouble = trouble or error
        if trouble is not None:
            raise trouble

    def place(self) -> tuple[int, int]:
        """The directory's device and inode: different once another disk, or none, is mounted there.
        OSError if the directory does not exist.
        """
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def free_bytes(self) -> int:
        """Bytes that the node's user may still write on this mount."""
        space = os.statvfs(self.path)
        return space.f_bavail * space.f_frsize

    def find(self) -> HeldFound:
        """The units, some in doubt (see `look_again`). OSError if the directories cannot be listed:
        then the held segments are unknown.
        """
        units, unread = [], []
        for id_, parent in directories(self.path):
            for name in filter(is_unit_name, names(parent)):
                try:
                    units.append(found_unit(id_, parent / name))
                except (OSError, StrandlineError) as error:
                    if not _is_gone(log_of(parent / name)):
                        unread.append(Unread(id_, why_unread(parent / name, error)))
        return HeldFound(tuple(units), tuple(unread))

    def hold(self, local: LocalPartition, segment: LocalSegment) -> Unit | None:
        """Link a sealed segment; None if the broker removed or changed it first. Passes OSError."""
        assert segment.next_base_offset is not None, "only sealed segments are held"
        base, next_base = segment.base_offset, segment.next_base_offset
        id_ = local.partition
        try:
            name = unit_name(base, next_base, segment.log_path.stat(), local.leader_epochs)
        except FileNotFoundError:
            return None
        aside = self._make_aside(id_, name)
        try:
            link_files(local, base, next_base, aside)
            if not _still_as_scanned(local, next_base):
                remove_unit(aside)
                return None
            found = read_unit(id_, aside, base, next_base, segment.size_bytes)
            if is_written(found, found.segment.log_path.stat()):
                remove_unit(aside)
                return None
            _name(aside, name)
        except (FileNotFoundError, StrandlineError):
            remove_unit(aside)
            return None
        except OSError:
            remove_unit(aside)
            raise
        log = log_of(aside.with_name(name))
        return replace(found, segment=replace(found.segment, log_path=log))

    def hold_left(
        self, link: ActiveLink, local: LocalPartition | None, proof: Proof, *, may_cut: bool
    ) -> RebuiltUnit:
        """Make a unit of a file that was active when it was linked, and that is no longer written
        to: of the whole file or, if it `may_cut`, of the part that was surely committed. No unit if
        no offset is left to hold, or an earlier process made it already. NotCommittedError: some
        records are not proven to be committed, and it may not cut or nothing is left. NoRoomError:
        the disk has no room for a copy of the part. CorruptData; OSError.
        """
        batches = scan_batches(link.log_path, link.base_offset, zeros_may_follow=True)
        whole = _unit_of(link, batches)
        if whole is None:
            return RebuiltUnit(None)
        batches = committed_batches(whole, batches, proof, may_cut=may_cut)
        rest = rest_of(whole, batches)
        unit = whole if rest is None else _unit_of(link, batches)
        assert unit is not None, "`committed_batches` raises if nothing is left"
        if rest is not None and self._has(unit):
            return RebuiltUnit(None, rest)
        base, end, epochs = unit.base_offset, unit.next_base_offset, unit.leader_epochs
        followed_by = epoch_for_offset(link.epochs(), end)
        if followed_by is not None and followed_by > epochs[-1].epoch:
            epochs = append_entry(epochs, followed_by, end)
        name = unit_name(base, end, link.log_path.stat(), epochs)
        try:
            aside = self._make_aside(unit.partition, name)
            try:
                size = None if rest is None else batches.size_bytes
                log = link_left(link, local, end, aside, cut_to=size)
                write(aside / LEADER_EPOCH_CHECKPOINT_FILE, leader_epoch_checkpoint.encode(epochs))
                name = unit_name(base, end, log.stat(), epochs)
                _name(aside, name)
            except OSError:
                remove_unit(aside)
                raise
        except OSError as error:
            if rest is not None and error.errno in FULL:
                raise NoRoomError(whole, unit) from error
            raise
        return RebuiltUnit(found_unit(unit.partition, aside.with_name(name)), rest)

    def _has(self, cut: Unit) -> bool:
        """True if an earlier process made the same unit: a copy, so only its inode differs."""
        parent = directory_of(self.path, cut.partition)
        base, end, size = cut.base_offset, cut.next_base_offset, cut.segment.size_bytes
        for name in filter(is_unit_name, names(parent)):
            if name.startswith(f"{base:020d}-{end:020d}-{size}-"):
                with contextlib.suppress(StrandlineError, FileNotFoundError):
                    found = found_unit(cut.partition, parent / name)
                    if found.doubt is None and found.leader_epochs == cut.leader_epochs:
                        return True
        return False

    def _make_aside(self, id_: TopicIdPartition, name: str) -> Path:
        parent = directory_of(self.path, id_)
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = parent / (_ASIDE + name)
        remove_unit(aside)
        aside.mkdir(mode=0o700)
        return aside

    def look_again(
        self, unit: Unit, local: LocalPartition | None, own: LocalSegment | None
    ) -> Unit | None:
        """The unit as it is now, in doubt if it changed; None if it is gone. While its file is part
        of the live log `local`, as `own`, or that log surely goes on from the unit's end, the epoch
        that follows the unit is read from that log. OSError: the state is unknown.
        """
        try:
            now = os.stat(unit.segment.log_path)
        except (FileNotFoundError, NotADirectoryError):
            os.stat(self.path)  # raises if the disk is not mounted: the unit may exist
            return None
        # Links that are not the broker's, of a second Strandline cluster or a backup, do not count.
        alone = now.st_nlink == 1 or (
            own is None
            if local is not None
            else not is_in_a_log(unit.partition, unit.segment.log_path, self.log_dirs)
        )
        if unit.doubt is not None or is_written(unit, now):
            try:
                unit = found_unit(unit.partition, unit.segment.log_path.parent)
            except StrandlineError as error:
                unit = replace(unit, doubt=str(error))
            return replace(unit, alone=alone)
        if unit.alone != alone:
            unit = replace(unit, alone=alone)
        if local is None:
            return unit
        epoch = epoch_for_offset(local.leader_epochs, unit.next_base_offset)
        if epoch is None or epoch == unit.followed_by or epoch < unit.leader_epochs[-1].epoch:
            return unit
        if own is None and not is_roll_of(unit, local):
            return unit
        checkpoint = unit.segment.log_path.with_name(LEADER_EPOCH_CHECKPOINT_FILE)
        followed = append_entry(unit.leader_epochs, epoch, unit.next_base_offset)
        replace_file(OsDisk(), checkpoint, leader_epoch_checkpoint.encode(followed))
        return replace(unit, followed_by=epoch)

    def rebuild_from_batches(self, unit: Unit, proof: Proof, *, may_cut: bool) -> RebuiltUnit:
        """Correct a unit in doubt that left the broker's log from its batches, if it was written
        to. No unit if no offset is left to hold, or another unit has the same file. OSError, and
        NotCommittedError as in `hold_left`: the unit is unchanged.
        """
        path = unit.segment.log_path.parent
        if not is_written(unit, unit.segment.log_path.stat()):
            return RebuiltUnit(unit)
        try:
            name, rest = rewrite_from_batches(unit, proof, may_cut=may_cut)
            target = path if name is None else path.with_name(name)
            if name is None or (target != path and target.exists()):
                return RebuiltUnit(None, rest)
            os.rename(path, target)
            return RebuiltUnit(found_unit(unit.partition, target), rest)
        except StrandlineError as error:
            return RebuiltUnit(replace(unit, doubt=str(error)))

    def release(self, unit: Unit) -> Path | None:
        """Release a unit; returns the directory to remove, None if it was gone. On OSError the unit
        is still held.
        """
        directory = unit.segment.log_path.parent
        going = directory.with_name(_GONE + directory.name)
        try:
            os.rename(directory, going)
        except FileNotFoundError:
            return None
        return going

    def give(self, unit: Unit, partition: TopicIdPartition) -> Unit | None:
        """Move a unit to another topic id; None if that id has the same file already. On OSError
        the unit is held as before.
        """
        source = unit.segment.log_path.parent
        target = source.parent.with_name(str(partition.topic_id)) / source.name
        if target.exists():
            going = self.release(unit)
            if going is not None:
                self.remove(going)
            return None
        metadata = encode_partition_metadata(partition.topic_id)
        replace_file(OsDisk(), source / PARTITION_METADATA_FILE, metadata)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        os.rename(source, target)
        with contextlib.suppress(OSError):  # it is not empty
            source.parent.rmdir()
        segment = replace(unit.segment, log_path=log_of(target))
        return replace(unit, partition=partition, segment=segment)

    def holds_any(self) -> bool:
        """True if the directory has a unit. Passes OSError."""
        parents = directories(self.path)
        return any(is_unit_name(name) for _, parent in parents for name in names(parent))

    @staticmethod
    def remove(going: Path) -> None:
        """Remove a released unit's links; its bytes are freed with the last link. After an OSError
        `sweep` removes the rest.
        """
        remove_unit(going)
        for parent in (going.parent, going.parent.parent):
            try:
                parent.rmdir()
            except OSError:
                return  # it is not empty


def try_link(log_dir: Path, into: Path, named: Path) -> None:
    """Link a file of the log directory into `into`, and remove the link. Refused, with an
    instruction that names the directory `named`, if that fails.
    """
    probe = into / PROBE
    try:
        probe.unlink(missing_ok=True)
        os.link(log_dir / META_PROPERTIES_FILE, probe)
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"no link from {log_dir} can be made in {named} ({error.strerror}): put it on the same "
            "mount, and run the node as the broker's user or with CAP_FOWNER (see "
            "fs.protected_hardlinks)"
        ) from error


def why_unread(path: Path, why: object) -> str:
    """A sentence about a unit that cannot be used, and what to do."""
    return (
        f"the held segment in {path} cannot be read ({why}): repair that, or remove the directory "
        "by hand if its records may be lost"
    )


def _unit_of(link: ActiveLink, batches: Batches) -> Unit | None:
    """The unit of a linked file with these batches; None if no offset is left to hold."""
    known, base = link.epochs(), link.base_offset
    first_known = max(base, known[0].start_offset) if known else base
    epochs = batches.epochs
    if first_known > base:
        epochs = truncate_from_start(epochs, first_known)
    if not epochs or batches.end <= first_known:
        return None
    size, modified_ns = batches.size_bytes, link.log_path.stat().st_mtime_ns
    segment = replace(link.segment, next_base_offset=batches.end, size_bytes=size)
    return Unit(link.partition, segment, epochs, modified_ns, True, -1)


def own_segment(local: LocalPartition, held: LocalSegment) -> LocalSegment | None:
    """The broker's segment whose file is the held one; None if there is none. A file that left a
    log never comes back, so one found now was in the log at the scan too. OSError: unknown.
    """
    at = bisect_left(local.segments, held.base_offset, key=lambda each: each.base_offset)
    found = local.segments[at] if at < len(local.segments) else None
    return found if found is not None and is_one_file(found, held) else None


def is_of_one_log(local: LocalPartition, held: Iterable[Unit], unit: Unit) -> bool:
    """True if the unit's file is in this log, or held from it: no file belongs to two logs."""
    with contextlib.suppress(OSError):
        known = (*local.segments, *(each.segment for each in held))
        return any(is_one_file(each, unit.segment) for each in known)
    return False


def is_one_file(one: LocalSegment, other: LocalSegment) -> bool:
    """True if both are the same file now. OSError: unknown."""
    if one.base_offset == other.base_offset:
        with contextlib.suppress(FileNotFoundError):  # removed since the scan
            return os.path.samestat(os.stat(one.log_path), os.stat(other.log_path))
    return False


def _name(aside: Path, name: str) -> None:
    """Give a finished unit its name; an unknown directory of that name is removed."""
    sync_path(aside)
    target = aside.with_name(name)
    if target.exists():
        going = aside.with_name(_GONE + name)
        os.rename(target, going)
        remove_unit(going)
    os.rename(aside, target)


def _still_as_scanned(local: LocalPartition, next_base: int) -> bool:
    """True if the linked segment is the scanned one: a truncation or a new topic changes the topic
    id, the leader epoch checkpoint or the next segment.
    """
    source = local.directory
    metadata = source / PARTITION_METADATA_FILE
    return (
        parse_partition_metadata(read_small(metadata), source=str(metadata))
        == local.partition.topic_id
        and read_small(source / LEADER_EPOCH_CHECKPOINT_FILE) == local.checkpoint_bytes
        and (source / segment_file_name(next_base, LOG_SUFFIX)).exists()
    )


def _is_gone(log: Path) -> bool:
    """True if the disk reports that the log does not exist."""
    try:
        os.stat(log)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def remove_unit(directory: Path) -> None:
    """Remove a unit's directory and its files; never deeper."""
    for name in names(directory):
        (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        directory.rmdir()
