"""Remembers unchanged replicas, so that a scan of idle ones is cheap.

Kafka changes a replica's directory by making, renaming and removing files (checkpoints are written
to a temporary file and renamed), and each of these changes the directory's modification time. Only
the growth of the active segment does not; its size is read at every scan, and so are the stamps of
the two small files that an operator might restore in place.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    segment_file_name,
)
from rlm.local_log.epoch_borders import EpochsContradictedError, check_epochs
from rlm.local_log.replica_directory import (
    LISTINGS_MAX,
    LocalSegment,
    ProblemKind,
    Replica,
    ReplicaError,
    read_replica,
)

READS_TO_TRUST = 2
"""Equal scans needed before a replica is trusted to be unchanged: a second change within one clock
tick leaves the modification time as it is.
"""

_Stamp = tuple[int, int, int, int] | None
_Seen = tuple[_Stamp, _Stamp, _Stamp, int | None]


@dataclass(frozen=True, slots=True)
class _Known:
    """A remembered replica. `reads` scans in a row found it with the stamps `seen`."""

    seen: _Seen
    replica: Replica
    reads: int


class ReplicaMemory:
    """Remembers replicas from scan to scan: one scan at a time, in any thread."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}
        self._checked: dict[Path, bytes] = {}
        self._segments: dict[Path, tuple[Replica, tuple[LocalSegment, ...]]] = {}

    def read(self, directory: Path, high_watermark: int | None) -> Replica:
        """Read a replica as `read_replica` does, but return an unchanged one from memory.
        ReplicaError, too, if the batches contradict its leader-epoch-checkpoint.
        """
        known = self._known.pop(directory, None)
        try:
            # Take the stamps before the files are read: the next scan sees a change in between.
            seen = (
                _stamp(directory),
                _stamp(directory / LEADER_EPOCH_CHECKPOINT_FILE),
                _stamp(directory / PARTITION_METADATA_FILE),
                high_watermark,
            )
            if known is not None and known.seen == seen and known.reads >= READS_TO_TRUST:
                replica = _with_active_size(known.replica)
                self._known[directory] = replace(known, replica=replica)
                return replica
        except OSError:
            return read_replica(directory, high_watermark)  # its error names the fault
        replica, is_proven = self._read(directory, high_watermark)
        if replica.warning is None and is_proven:
            again = known is not None and known.seen == seen
            self._known[directory] = _Known(seen, replica, READS_TO_TRUST if again else 1)
        return replica

    def segments(self, replica: Replica) -> tuple[LocalSegment, ...]:
        """The replica's segments; an unchanged replica's are those of the last scan."""
        made = self._segments.get(replica.directory)
        if made is None or made[0] is not replica:
            made = self._segments[replica.directory] = replica, _segments(replica)
        return made[1]

    def _read(self, directory: Path, high_watermark: int | None) -> tuple[Replica, bool]:
        """(the replica, True); False if the batches could not be read: the copy reports why."""
        for _ in range(LISTINGS_MAX):
            replica = read_replica(directory, high_watermark)
            try:
                self._check_epochs(replica)
            except FileNotFoundError:
                continue  # removed since the listing
            except OSError:
                return replica, False
            return replica, True
        raise ReplicaError(
            ProblemKind.CHANGING, f"{directory} changed {LISTINGS_MAX} times while it was read"
        )

    def _check_epochs(self, replica: Replica) -> None:
        """Check the batches against the checkpoint: once for each content of it, but repeated until
        a batch follows its last border.
        """
        directory, checkpoint = replica.directory, replica.checkpoint_bytes
        if self._checked.get(directory) == checkpoint:
            return
        bases = [base for base, _ in replica.logs]
        try:
            if check_epochs(directory, bases, replica.leader_epochs):
                self._checked[directory] = checkpoint
        except EpochsContradictedError as error:
            path = directory / LEADER_EPOCH_CHECKPOINT_FILE
            if path.read_bytes() == checkpoint:
                raise ReplicaError(
                    ProblemKind.CORRUPT,
                    f"{path} is damaged, or a batch is: {error}. Let another replica lead; while "
                    "this broker is down, correct the line, or copy the file from another replica",
                ) from None

    def keep(self, directories: Collection[Path]) -> None:
        """Forget the replicas of all other directories."""
        kept = set(directories)
        self._checked = {path: self._checked[path] for path in kept & self._checked.keys()}
        self._segments = {path: self._segments[path] for path in kept & self._segments.keys()}
        for directory in [each for each in self._known if each not in kept]:
            del self._known[directory]


def _segments(replica: Replica) -> tuple[LocalSegment, ...]:
    ends = [base for base, _ in replica.logs[1:]]
    return tuple(
        LocalSegment(
            base,
            replica.directory / segment_file_name(base, LOG_SUFFIX),
            size,
            end,
            replica.sealed_at_ms.get(base),
        )
        for (base, size), end in zip(replica.logs, [*ends, None], strict=True)
    )


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _with_active_size(replica: Replica) -> Replica:
    base, size = replica.logs[-1]
    now = os.stat(replica.directory / segment_file_name(base, LOG_SUFFIX)).st_size
    if now == size:
        return replica
    return replace(replica, logs=(*replica.logs[:-1], (base, now)))
