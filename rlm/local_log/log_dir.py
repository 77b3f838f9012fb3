"""Finds partitions in a Kafka broker's log directories (Kafka's LogManager).

Everything here blocks; callers use an executor. Nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.log_names import (
    META_PROPERTIES_FILE,
    DirectoryKind,
    parse_partition_directory,
)
from kafka_formats.offset_checkpoint import CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE
from kafka_formats.offset_checkpoint import parse as parse_offset_checkpoint
from kafka_formats.properties import MetaProperties, parse_meta_properties
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.replica_directory import (
    LocalSegment,
    ProblemKind,
    Replica,
    ReplicaError,
    ReplicaGoneError,
    read_small,
)
from rlm.local_log.replica_memory import ReplicaMemory

__all__ = [
    "LocalPartition",
    "LocalSegment",
    "LogDirProblem",
    "LogDirScan",
    "ProblemKind",
    "find_partitions",
]

_NEVER_TIERED = frozenset({"__cluster_metadata-0", "remote-log-index-cache"})
_Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A live replica. `segments` ascend and are never empty; the last one is active.

    `leader_epochs`: `checkpoint_bytes` parsed, with a lost head found in the batches
    (`lost_epochs.py`). `high_watermark` and `log_start_offset`: from the broker's checkpoint files,
    seconds old, None if not listed there. `last_stable_offset_bound`: a lower bound; all
    transactions below it have ended. `cleaned`: the broker's log cleaner has a checkpoint of the
    partition, so it has worked here. `removed_logs`: base offsets that have an index but no `.log`.
    `is_seen` False: the replica is on a disk that this node does not see, so `directory` and paths
    do not exist here, and offsets are those that the broker reported. `high_watermark_written_ns`:
    the modification time of that checkpoint, or of one before it.
    """

    partition: TopicIdPartition
    directory: Path
    segments: tuple[LocalSegment, ...]
    leader_epochs: Epochs
    checkpoint_bytes: bytes
    high_watermark: int | None
    log_start_offset: int | None
    producer_snapshots: tuple[int, ...]
    last_stable_offset_bound: int
    cleaned: bool = False
    removed_logs: tuple[int, ...] = ()
    is_seen: bool = True
    high_watermark_written_ns: int | None = None

    @property
    def local_log_start_offset(self) -> int:
        """The first offset served from this disk (Kafka's localLogStartOffset).

        After DeleteRecords, or a truncation below it, the epochs begin at that offset at once. The
        broker writes its log start checkpoint up to a minute later
        (log.flush.start.offset.checkpoint.interval.ms), and a value that is too high would give up
        existing records: it is used only if there are no epochs.
        """
        if self.leader_epochs:
            return max(self.segments[0].base_offset, self.leader_epochs[0].start_offset)
        return max(self.segments[0].base_offset, self.log_start_offset or 0)

    @property
    def known_segments(self) -> tuple[LocalSegment, ...]:
        """`segments`; a segment that begins below the local log start gets it as its first known
        offset.
        """
        start = self.local_log_start_offset
        if start <= self.segments[0].base_offset:
            return self.segments
        return tuple(
            replace(each, first_known_offset=start) if each.base_offset < start else each
            for each in self.segments
        )


@dataclass(frozen=True, slots=True)
class LogDirProblem:
    """A problem with a log directory or one partition in it. `topic` and `partition` None: the
    whole directory.
    """

    path: Path
    topic: str | None
    partition: int | None
    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class LogDirScan:
    """One scan of all log directories. `cluster_id` and `node_id` are from meta.properties.
    `rivals`: replicas that have a name in common, each of a different topic, and a problem each.
    """

    partitions: tuple[LocalPartition, ...]
    problems: tuple[LogDirProblem, ...]
    cluster_id: str | None
    node_id: int | None
    rivals: tuple[LocalPartition, ...] = ()

    def with_topics(self, ids: Mapping[str, object]) -> LogDirScan:
        """The scan with those rivals whose topic has this id, without the problem of each."""
        settled = [each for each in self.rivals if _is_of(each, ids)]
        here = {each.directory for each in settled}
        return replace(
            self,
            partitions=_sorted([*self.partitions, *settled]),
            problems=tuple(each for each in self.problems if each.path not in here),
            rivals=tuple(each for each in self.rivals if each.directory not in here),
        )


def find_partitions(
    log_dirs: Sequence[Path],
    *,
    kafka_cluster_id: str | None,
    memory: ReplicaMemory | None = None,
    only: Collection[tuple[str, int]] | None = None,
) -> LogDirScan:
    """Scan every live replica once; those that `memory` recognizes as unchanged are not read again.
    `only`: scan just the replicas of these (topic, partition), without listing the directories.

    InvalidRequest: no path is a log directory. Refused: one belongs to a different cluster than
    `kafka_cluster_id` (None: any cluster, but the same one for all). A fault of one directory (not
    mounted, say) or partition becomes a problem entry, and the others are still found.
    """
    if not log_dirs:
        raise InvalidRequest("name at least one log directory", field="log_dirs")
    memory = ReplicaMemory() if memory is None else memory
    scan = _Scan(kafka_cluster_id, memory)
    ours = [log_dir for log_dir in dict.fromkeys(log_dirs) if scan.identify(log_dir)]
    for log_dir in ours:
        scan.look_at(log_dir, only)
    result = scan.result()
    if only is None:
        memory.keep([each.directory for each in (*result.partitions, *result.rivals)])
    if all(each.kind is ProblemKind.NOT_A_LOG_DIRECTORY for each in result.problems) and not ours:
        raise InvalidRequest(result.problems[0].message, field="log_dirs")
    return result


@lru_cache(maxsize=64)
def _meta_properties(data: bytes, source: str) -> MetaProperties:
    """The parsed file, cached by its bytes, which every scan reads."""
    return parse_meta_properties(data, source=source)


class _Scan:
    def __init__(self, kafka_cluster_id: str | None, memory: ReplicaMemory) -> None:
        self._cluster_id = kafka_cluster_id
        self._memory = memory
        self._node_id: int | None = None
        self._found: dict[tuple[str, int], LocalPartition] = {}
        self._problems: list[LogDirProblem] = []
        self._duplicates: dict[tuple[str, int], list[LocalPartition]] = {}

    def identify(self, log_dir: Path) -> bool:
        """True if the directory's meta.properties was read and fits the cluster and the others."""
        path = log_dir / META_PROPERTIES_FILE
        try:
            found = _meta_properties(read_small(path), str(path))
        except (FileNotFoundError, NotADirectoryError):
            self._problem(
                path,
                ProblemKind.NOT_A_LOG_DIRECTORY,
                f"{log_dir} is not a Kafka log directory: it has no meta.properties. Give a path "
                "from the broker's log.dirs, not the directory of one partition",
            )
            return False
        except OSError as error:
            self._problem(path, ProblemKind.UNREADABLE, f"cannot be read: {error.strerror}")
            return False
        except CorruptData as error:
            self._problem(path, ProblemKind.CORRUPT, str(error))
            return False
        if self._cluster_id is None:
            self._cluster_id = found.cluster_id
        if found.cluster_id != self._cluster_id:
            raise Refused(
                f"{log_dir} belongs to the Kafka cluster {found.cluster_id}, not to "
                f"{self._cluster_id}: correct log_dirs, or use the node of that cluster"
            )
        if self._node_id is None:
            self._node_id = found.node_id
        if found.node_id != self._node_id:
            raise Refused(
                f"{log_dir} belongs to broker {found.node_id}, another log directory to broker "
                f"{self._node_id}: give each node the log directories of one broker only"
            )
        return True

    def look_at(self, log_dir: Path, only: Collection[_Key] | None) -> None:
        """Read every live replica in the directory, or only those of `only`."""
        # Read the time before the content, and both before any log: `cut_doubt` relies on it.
        written_ns = _written_ns(log_dir / HIGH_WATERMARK_FILE)
        high_watermarks = self._checkpoint(log_dir / HIGH_WATERMARK_FILE)
        log_starts = self._checkpoint(log_dir / LOG_START_FILE)
        cleaned = self._checkpoint(log_dir / CLEANER_FILE)
        for name, key in self._listed(log_dir) if only is None else _named(only):
            try:
                replica = self._memory.read(log_dir / name, high_watermarks.get(key))
            except ReplicaGoneError:
                continue  # deleted or moved away since the listing
            except ReplicaError as trouble:
                self._problem(log_dir / name, trouble.kind, str(trouble), key)
                continue
            if replica.warning is not None:
                self._problem(log_dir / name, replica.warning.kind, str(replica.warning), key)
            self._take(
                key,
                replica,
                (high_watermarks.get(key), written_ns),
                log_starts.get(key),
                cleaned=key in cleaned,
            )

    def _listed(self, log_dir: Path) -> Iterator[tuple[str, _Key]]:
        """The directories of live replicas, by name."""
        try:
            with os.scandir(log_dir) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._problem(log_dir, ProblemKind.UNREADABLE, f"cannot be listed: {error.strerror}")
            return
        for entry in found:
            key = _live(entry.name)
            if key is None:
                continue
            try:
                if not entry.is_dir():
                    continue
            except OSError as error:
                text = f"{entry.path} cannot be read: {error.strerror}"
                self._problem(log_dir / entry.name, ProblemKind.UNREADABLE, text, key)
                continue
            yield entry.name, key

    def result(self) -> LogDirScan:
        """The result, without partitions that lie in two directories."""
        rivals: list[LocalPartition] = []
        for key, others in self._duplicates.items():
            all_of_it = [self._found.pop(key), *others]
            text = ", ".join(str(each.directory) for each in all_of_it)
            if len({each.partition for each in all_of_it}) == len(all_of_it):
                rivals += all_of_it
            for each in all_of_it:
                self._problem(
                    each.directory,
                    ProblemKind.DUPLICATE,
                    f"the same partition is live in {text}, here with topic id "
                    f"{each.partition.topic_id}; Kafka allows one: remove the stale one while the "
                    "broker is down",
                    key,
                )
        return LogDirScan(
            _sorted(self._found.values()),
            tuple(self._problems),
            self._cluster_id,
            self._node_id,
            tuple(rivals),
        )

    def _take(
        self,
        key: tuple[str, int],
        replica: Replica,
        high_watermark: tuple[int | None, int | None],
        log_start: int | None,
        *,
        cleaned: bool,
    ) -> None:
        local = LocalPartition(
            partition=TopicIdPartition(key[0], replica.topic_id, key[1]),
            directory=replica.directory,
            segments=self._memory.segments(replica),
            leader_epochs=replica.leader_epochs,
            checkpoint_bytes=replica.checkpoint_bytes,
            high_watermark=high_watermark[0],
            log_start_offset=log_start,
            producer_snapshots=replica.producer_snapshots,
            last_stable_offset_bound=replica.last_stable_offset_bound,
            cleaned=cleaned,
            removed_logs=replica.removed_logs,
            high_watermark_written_ns=high_watermark[1],
        )
        if self._found.setdefault(key, local) is not local:
            self._duplicates.setdefault(key, []).append(local)

    def _checkpoint(self, path: Path) -> dict[tuple[str, int], int]:
        """A checkpoint file of the whole directory; empty for a fresh broker that has none yet."""
        try:
            return parse_offset_checkpoint(read_small(path), source=str(path))
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._problem(path, ProblemKind.UNREADABLE, f"cannot be read: {error.strerror}")
        except CorruptData as error:
            self._problem(path, ProblemKind.CORRUPT, str(error))
        return {}

    def _problem(
        self, path: Path, kind: ProblemKind, message: str, key: tuple[str, int] | None = None
    ) -> None:
        topic, partition = (None, None) if key is None else key
        self._problems.append(LogDirProblem(path, topic, partition, kind, message))


def _is_of(local: LocalPartition, ids: Mapping[str, object]) -> bool:
    return ids.get(local.partition.topic) == local.partition.topic_id


def _sorted(partitions: Iterable[LocalPartition]) -> tuple[LocalPartition, ...]:
    return tuple(sorted(partitions, key=lambda each: each.partition))


def _live(name: str) -> _Key | None:
    """Topic and partition of a live replica's directory; None: it is none that may be tiered."""
    parsed = parse_partition_directory(name)
    if parsed is None or parsed.kind is not DirectoryKind.LIVE or name in _NEVER_TIERED:
        return None
    return parsed.topic, parsed.partition


def _named(keys: Collection[_Key]) -> Iterator[tuple[str, _Key]]:
    """The names that directories of these replicas have."""
    for topic, partition in sorted(set(keys)):
        name = f"{topic}-{partition}"
        if _live(name) == (topic, partition):
            yield name, (topic, partition)


def _written_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
