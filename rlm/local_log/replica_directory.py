"""Reads one replica's directory while the broker writes it (Kafka's UnifiedLog).

Blocks; nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, producer_snapshot
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from kafka_formats.properties import parse_partition_metadata

LISTINGS_MAX = 6
"""Limit of the listings tried while the directory keeps changing."""

SMALL_FILE_BYTES_MAX = 64 * 1024 * 1024
USUAL_FILE_BYTES_MAX = 64 * 1024


class ProblemKind(StrEnum):
    """The reason why something in a log directory was skipped, at least in part."""

    UNREADABLE = "UNREADABLE"
    NO_TOPIC_ID = "NO_TOPIC_ID"
    CORRUPT = "CORRUPT"
    CHANGING = "CHANGING"
    DUPLICATE = "DUPLICATE"
    NO_SEGMENTS = "NO_SEGMENTS"
    NOT_A_LOG_DIRECTORY = "NOT_A_LOG_DIRECTORY"


class ReplicaError(Exception):
    """This replica cannot be used now, or only in part; the text says why."""

    def __init__(self, kind: ProblemKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ReplicaGoneError(Exception):
    """The directory does not exist any more."""


class _ChangedError(Exception):
    """The directory changed while it was read: look again."""


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment on this disk. `next_base_offset` and `sealed_at_ms` (Unix time) are None for the
    active one. `first_known_offset` above the base: DeleteRecords removed the records below it,
    whose epochs are unknown; -1: all epochs are known. For segments of a replica it is set in
    `LocalPartition.known_segments`.
    """

    base_offset: int
    log_path: Path
    size_bytes: int
    next_base_offset: int | None
    sealed_at_ms: int | None = None
    first_known_offset: int = -1


@dataclass(frozen=True, slots=True)
class Replica:
    """A consistent view of a replica. `logs` are (base offset, bytes) of every `.log`, ascending.

    `sealed_at_ms`: by base offset, without the active one. `warning`: the reason why a part of the
    replica is unusable. `removed_logs`: base offsets that have an index but no `.log`, ascending.
    """

    directory: Path
    topic_id: Uuid
    logs: tuple[tuple[int, int], ...]
    sealed_at_ms: Mapping[int, int]
    producer_snapshots: tuple[int, ...]
    leader_epochs: Epochs
    checkpoint_bytes: bytes
    last_stable_offset_bound: int
    warning: ReplicaError | None
    removed_logs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Listing:
    """Base offsets of `.log` files and offsets of producer snapshots, ascending; `without_log`:
    base offsets between the first and the last `.log` that have an index and no `.log`.
    """

    logs: tuple[int, ...]
    snapshots: tuple[int, ...]
    without_log: set[int]


def read_replica(directory: Path, high_watermark: int | None) -> Replica:
    """Read one replica. ReplicaError or ReplicaGoneError, and no other error for any content."""
    for _ in range(LISTINGS_MAX):
        try:
            return _read_once(directory, high_watermark)
        except (_ChangedError, FileNotFoundError):
            if not _is_there(directory):
                raise ReplicaGoneError from None
        except NotADirectoryError:
            raise ReplicaGoneError from None
        except CorruptData as error:
            raise ReplicaError(ProblemKind.CORRUPT, str(error)) from error
        except OSError as error:
            raise _unreadable(directory, error) from error
    raise ReplicaError(
        ProblemKind.CHANGING, f"{directory} changed {LISTINGS_MAX} times while it was listed"
    )


def _is_there(directory: Path) -> bool:
    """True if the directory exists. ReplicaError if the disk cannot be read."""
    try:
        return directory.is_dir()
    except OSError as error:
        raise _unreadable(directory, error) from error


def _unreadable(directory: Path, error: OSError) -> ReplicaError:
    return ReplicaError(
        ProblemKind.UNREADABLE,
        f"{error.filename or directory} cannot be read ({error.strerror}): let the node's user "
        "read the broker's files",
    )


def _read_once(directory: Path, high_watermark: int | None) -> Replica:
    topic_id = _read_topic_id(directory)
    listing = _list(directory)
    bases, snapshots = listing.logs, listing.snapshots
    checkpoint = _read_checkpoint(directory)
    files = [(directory / segment_file_name(base, LOG_SUFFIX)).stat() for base in bases]
    logs = tuple((base, file.st_size) for base, file in zip(bases, files, strict=True))
    sealed_at_ms = _sealed_at_ms(directory, bases, files, frozenset(snapshots))
    epochs = leader_epoch_checkpoint.parse(
        checkpoint, source=str(directory / LEADER_EPOCH_CHECKPOINT_FILE)
    )
    bound, warning = _last_stable_offset_bound(directory, snapshots, high_watermark)
    # A listing does not show one instant: it may have a segment and miss the previous one, so that
    # the one before that seems to reach across. Segments are made in order, so a second, equal
    # listing proves that the first was complete.
    again = _list(directory)
    if again.logs != bases or _read_topic_id(directory) != topic_id:
        raise _ChangedError
    removed = tuple(sorted(listing.without_log & again.without_log))
    if removed and warning is None:
        # The segment before it seems to reach across; its copy reports the gap.
        warning = ReplicaError(
            ProblemKind.CORRUPT,
            f"{directory / segment_file_name(removed[0], LOG_SUFFIX)} is missing, while its "
            "index and segments before and after it are there: restore the file, or let the "
            "broker fetch the replica anew",
        )
    if not bases:
        raise ReplicaError(
            ProblemKind.NO_SEGMENTS,
            f"{directory} holds no .log file: the broker is still making it",
        )
    return Replica(
        directory, topic_id, logs, sealed_at_ms, snapshots, epochs, checkpoint, bound, warning,
        removed,
    )  # fmt: skip


def _sealed_at_ms(
    directory: Path,
    bases: Sequence[int],
    files: Sequence[os.stat_result],
    snapshots: frozenset[int],
) -> dict[int, int]:
    """The time of each roll: between the last write to a segment and that to the next.

    The producer snapshot at the next base is written at the roll (and again by a recovery). Without
    it the time of the last write is used, which in a quiet partition is long before the roll.
    """
    sealed = {}
    for number, next_base in enumerate(bases[1:]):
        at_ms = files[number].st_mtime_ns // 1_000_000
        if next_base in snapshots:
            try:
                path = directory / segment_file_name(next_base, SNAPSHOT_SUFFIX)
                at_ms = max(at_ms, path.stat().st_mtime_ns // 1_000_000)
            except FileNotFoundError:
                pass  # cleaned up since the listing
        if next_base != bases[-1]:
            at_ms = min(at_ms, files[number + 1].st_mtime_ns // 1_000_000)
        sealed[bases[number]] = at_ms
    return sealed


def _list(directory: Path) -> _Listing:
    found: dict[str, list[int]] = {LOG_SUFFIX: [], SNAPSHOT_SUFFIX: [], INDEX_SUFFIX: []}
    with os.scandir(directory) as entries:
        for entry in entries:
            parsed = parse_segment_file_name(entry.name)
            if parsed is not None and parsed[1] in found:
                found[parsed[1]].append(parsed[0])
    logs = sorted(found[LOG_SUFFIX])
    between = {base for base in found[INDEX_SUFFIX] if logs and logs[0] < base < logs[-1]}
    return _Listing(tuple(logs), tuple(sorted(found[SNAPSHOT_SUFFIX])), between.difference(logs))


def why_another(directory: Path, topic_id: Uuid) -> str | None:
    """The reason why the directory may belong to a different topic; None if it is this topic's.
    Blocks.
    """
    try:
        found = _read_topic_id(directory)
    except ReplicaGoneError:
        return f"{directory} was removed since it was scanned"
    except (ReplicaError, CorruptData) as error:
        return str(error)
    except OSError as error:
        return str(_unreadable(directory, error))
    if found == topic_id:
        return None
    return (
        f"{directory} belongs to a different topic than when it was scanned: its topic id is now "
        f"{found}"
    )


def _read_topic_id(directory: Path) -> Uuid:
    path = directory / PARTITION_METADATA_FILE
    try:
        return parse_partition_metadata(read_small(path), source=str(path))
    except FileNotFoundError:
        if not _is_there(directory):
            raise ReplicaGoneError from None
        raise ReplicaError(
            ProblemKind.NO_TOPIC_ID,
            f"{path} is missing, so the topic id of the replica is unknown: brokers write it from "
            "Kafka 3.0 on (2.8 does not yet), where ZooKeeper is used with "
            "inter.broker.protocol.version 2.8 or higher: upgrade the broker",
        ) from None


def _read_checkpoint(directory: Path) -> bytes:
    """The leader epoch checkpoint's bytes; empty before the first batch."""
    try:
        return read_small(directory / LEADER_EPOCH_CHECKPOINT_FILE)
    except FileNotFoundError:
        return b""


def _last_stable_offset_bound(
    directory: Path, snapshots: tuple[int, ...], high_watermark: int | None
) -> tuple[int, ReplicaError | None]:
    """A lower bound of the last stable offset, from files alone; 0 if nothing proves more.

    Below the offset of a producer snapshot that is at or below the high watermark, every
    transaction has ended except those open in the snapshot. A damaged snapshot only lowers the
    bound.
    """
    warning = None
    for offset in reversed(snapshots):
        if high_watermark is None or offset > high_watermark:
            continue
        path = directory / segment_file_name(offset, SNAPSHOT_SUFFIX)
        try:
            open_from = producer_snapshot.first_unstable_offset(
                producer_snapshot.parse(read_small(path), source=str(path))
            )
        except FileNotFoundError:
            continue  # cleaned up since the listing
        except CorruptData as error:
            warning = ReplicaError(ProblemKind.CORRUPT, str(error))
            continue
        return (offset if open_from is None else min(offset, open_from)), warning
    return 0, warning


def read_small(path: Path) -> bytes:
    """A whole file; CorruptData if it is not small.

    A buffer for the largest file is made only when it is needed: to map and unmap 64 MiB took four
    times as long as to read a usual file, and each scan reads several.
    """
    with path.open("rb", buffering=0) as file:
        data = file.read(USUAL_FILE_BYTES_MAX)
    if len(data) == USUAL_FILE_BYTES_MAX:
        with path.open("rb") as file:
            data = file.read(SMALL_FILE_BYTES_MAX + 1)
    if len(data) > SMALL_FILE_BYTES_MAX:
        raise CorruptData(
            f"more than {SMALL_FILE_BYTES_MAX} bytes", source=str(path), position=len(data)
        )
    return data
