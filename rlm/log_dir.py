"""Partitions found in a Kafka broker's log directories, read as they lie (reference: Kafka's LogManager,
UnifiedLog, LogLoader).

Everything here blocks; callers use an executor. Nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlmm.segment import TopicIdPartition


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment on this disk. `next_base_offset` None means it is the active one."""

    base_offset: int
    log_path: Path
    size_bytes: int
    next_base_offset: int | None


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A live replica. `segments` ascend and are never empty; the last one is active.

    `leader_epochs` are `checkpoint_bytes` parsed. `high_watermark` and `log_start_offset` are the
    broker's checkpoints, seconds old, None where not listed. `last_stable_offset_bound` is at or
    below the last stable offset: a segment whose next base is at or below it is decided.
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

    @property
    def local_log_start_offset(self) -> int:
        """The first offset served from this disk (Kafka's localLogStartOffset)."""
        return max(self.segments[0].base_offset, self.log_start_offset or 0)


class ProblemKind(StrEnum):
    """Why something in a log directory was not taken, or only in part."""

    UNREADABLE = "UNREADABLE"
    NO_TOPIC_ID = "NO_TOPIC_ID"
    CORRUPT = "CORRUPT"
    CHANGING = "CHANGING"
    DUPLICATE = "DUPLICATE"
    NO_SEGMENTS = "NO_SEGMENTS"


@dataclass(frozen=True, slots=True)
class LogDirProblem:
    """`topic` and `partition` None: the trouble is with the whole directory."""

    path: Path
    topic: str | None
    partition: int | None
    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True)
class LogDirScan:
    """One look at all log directories. `cluster_id` and `node_id` as meta.properties say."""

    partitions: tuple[LocalPartition, ...]
    problems: tuple[LogDirProblem, ...]
    cluster_id: str | None
    node_id: int | None


def find_partitions(log_dirs: Sequence[Path], *, kafka_cluster_id: str | None) -> LogDirScan:
    """Look at every live replica once.

    InvalidRequest when a path is no log directory; Refused when it belongs to another cluster than
    `kafka_cluster_id` (None: any, but one). Trouble with one partition is a problem entry, and the
    others are still found.
    """
    raise NotImplementedError
