"""Links to the files of active segments, made before the broker removes them.

Kafka's retention deletes the active segment too, once all of its records are too old: it rolls the
log and removes the segment in one step (UnifiedLog.deleteSegments), so no scan finds it sealed. A
link made before has the records, and `HoldDirectory.hold_left` makes a unit of it.

`<hold directory>/.active/<node>/<topic>-<partition>/<topic id>/<base>-<inode>/` has the links and
the broker's leader epoch checkpoint, as it was while the file was part of the log. A directory
without its `.log` is half made. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.hold_tree import directories, directory_of, names
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlm.local_log.replica_directory import read_small, why_another
from rlmm.log.disk import OsDisk, replace_file, sync_path

BESIDE = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_COMMITTED = "high-watermark"
_COMMITTED_TEXT = re.compile(rb"(cut )?([0-9]{1,18})\n?")
_NAME = re.compile(r"(\d{20})-(\d+)")


@dataclass(frozen=True, slots=True)
class ActiveLink:
    """A link to a file that was an active segment. `checkpoint_bytes`: the broker's leader epoch
    checkpoint when the file was last seen in its log; empty if that copy is lost.
    """

    partition: TopicIdPartition
    path: Path
    base_offset: int
    checkpoint_bytes: bytes

    @property
    def log_path(self) -> Path:
        return self.path / segment_file_name(self.base_offset, LOG_SUFFIX)

    @property
    def segment(self) -> LocalSegment:
        """The file as a segment of unknown end."""
        return LocalSegment(self.base_offset, self.log_path, 0, None)

    def epochs(self) -> Epochs:
        """The checkpoint, parsed. CorruptData."""
        source = str(self.path / LEADER_EPOCH_CHECKPOINT_FILE)
        return leader_epoch_checkpoint.parse(self.checkpoint_bytes, source=source)

    def known_epochs(self) -> Epochs:
        """The checkpoint, parsed; empty if its epochs are lost."""
        try:
            return self.epochs()
        except CorruptData:
            return ()


def active_root(own: Path) -> Path:
    """The directory of the links beside a node's own hold directory."""
    return own.parent / ".active" / own.name


def find_links(root: Path) -> tuple[ActiveLink, ...]:
    """The links there; removes half-made ones. OSError if a directory cannot be listed."""
    found = []
    for partition, parent in directories(root):
        for name in names(parent):
            numbers = _NAME.fullmatch(name)
            if numbers is None:
                continue
            path, base = parent / name, int(numbers[1])
            link = ActiveLink(partition, path, base, b"")
            try:
                os.stat(link.log_path)
            except FileNotFoundError:
                remove_links(path)
                continue
            # Without the checkpoint the epochs are read from the batches.
            with contextlib.suppress(FileNotFoundError, CorruptData):
                data = read_small(path / LEADER_EPOCH_CHECKPOINT_FILE)
                link = replace(link, checkpoint_bytes=data)
            found.append(link)
    return tuple(found)


def holds_links(root: Path) -> bool:
    """True if a link is there. Passes OSError."""
    parents = directories(root)
    return any(_NAME.fullmatch(name) for _, parent in parents for name in names(parent))


def link_active(root: Path, local: LocalPartition) -> ActiveLink | None:
    """Link the active segment; None if the broker changed it meanwhile. Passes OSError."""
    active, id_ = local.segments[-1], local.partition
    try:
        inode = os.stat(active.log_path).st_ino
    except FileNotFoundError:
        return None
    path = directory_of(root, id_) / f"{active.base_offset:020d}-{inode}"
    link = ActiveLink(id_, path, active.base_offset, local.checkpoint_bytes)
    try:
        if not link.log_path.exists():
            remove_links(path)  # half removed: its other files may be of a different log
        _link(link, local)
        is_the_same = os.stat(link.log_path).st_ino == inode
        if is_the_same and why_another(local.directory, id_.topic_id) is None:
            return link
    except FileNotFoundError:
        pass
    except OSError:
        remove_links(link.path)
        raise
    remove_links(link.path)
    return None


def _link(link: ActiveLink, local: LocalPartition) -> None:
    link.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(OsDisk(), link.path / LEADER_EPOCH_CHECKPOINT_FILE, local.checkpoint_bytes)
    with contextlib.suppress(FileExistsError):
        os.link(local.segments[-1].log_path, link.log_path)
    link_beside(link, local)
    sync_path(link.path)


def is_in_a_log(id_: TopicIdPartition, file: Path, log_dirs: Iterable[Path]) -> bool:
    """True if a linked file is in a replica's directory; other links to it do not count. OSError:
    unknown.
    """
    for log_dir in log_dirs:
        path = log_dir / f"{id_.topic}-{id_.partition}" / file.name
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(os.stat(path), os.stat(file)):
                return True
    return False


def link_beside(link: ActiveLink, local: LocalPartition) -> ActiveLink:
    """The link of a file that is still part of the log, with the index files made since, and the
    checkpoint of this scan. If the log has no epochs now (it was truncated entirely), the earlier
    checkpoint stays: a different history can be told from it. Passes OSError.
    """
    for suffix in BESIDE:
        name = segment_file_name(link.base_offset, suffix)
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(local.directory / name, link.path / name)
    if local.checkpoint_bytes == link.checkpoint_bytes or not local.leader_epochs:
        return link
    replace_file(OsDisk(), link.path / LEADER_EPOCH_CHECKPOINT_FILE, local.checkpoint_bytes)
    return replace(link, checkpoint_bytes=local.checkpoint_bytes)


@dataclass(frozen=True, slots=True)
class Kept:
    """The high watermark at which a file was part of the log; -1: none is known. `is_cut`: the log
    was truncated at or below it, and the broker's high watermark is not yet known to be newer than
    that (`cut_doubt.py`).
    """

    high_watermark: int
    is_cut: bool = False


_UNREADABLE = Kept(0, is_cut=True)


def epochs_written_ns(directory: Path) -> int | None:
    """The modification time of a replica's leader epoch checkpoint; None if there is none. Passes
    OSError.
    """
    try:
        return os.stat(directory / LEADER_EPOCH_CHECKPOINT_FILE).st_mtime_ns
    except FileNotFoundError:
        return None


def keep_committed(link: ActiveLink, kept: Kept) -> None:
    """Write it to disk for the next process; durable on return. Passes OSError."""
    text = f"{'cut ' if kept.is_cut else ''}{max(0, kept.high_watermark)}\n"
    replace_file(OsDisk(), link.path / _COMMITTED, text.encode())


def kept_committed(link: ActiveLink) -> Kept:
    """The one that `keep_committed` wrote; -1 if there is none. An unreadable one may have told of
    a cut, so it counts as a cut at 0.
    """
    try:
        data = (link.path / _COMMITTED).read_bytes()
    except FileNotFoundError:
        return Kept(-1)
    except OSError:
        return _UNREADABLE
    # Without its line end it may be the first digits of a larger number: a lower bound, still true.
    found = _COMMITTED_TEXT.fullmatch(data)
    return _UNREADABLE if found is None else Kept(int(found[2]), found[1] is not None)


def remove_links(path: Path) -> None:
    """Remove a link's directory, and those above it that are empty then. Passes OSError."""
    with contextlib.suppress(FileNotFoundError):
        # The `.log` goes first: a directory without it is removed at the next start.
        for name in sorted(os.listdir(path), key=lambda name: not name.endswith(LOG_SUFFIX)):
            (path / name).unlink(missing_ok=True)
        path.rmdir()
    for parent in (path.parent, path.parent.parent):
        try:
            parent.rmdir()
        except OSError:
            return  # it is not empty
