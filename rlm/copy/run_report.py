"""The result of a one-shot run: the segments copied, skipped and failed, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.delete.clean_up_tasks import PendingCleanUp
from rlm.local_log.log_dir import LogDirProblem
from rlmm.segment import RemoteLogSegmentId


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """A segment that this run copied. `end_offset` is inclusive."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A copy attempt of this run that failed; a later one may have succeeded."""

    partition: TopicIdPartition
    start_offset: int
    kind: str
    error: str


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The partition at the end of the run, and why it was not copied further."""

    partition: TopicIdPartition
    next_offset: int
    why_not: WhyNot
    text: str
    complete: bool
    """True if every sealed, committed segment on this disk is in the tier."""


@dataclass(frozen=True, slots=True)
class CopyRunReport:
    """The whole run. `left_out` are topics that no pattern includes (with the sentence why)."""

    copied: tuple[CopiedSegment, ...]
    failed: tuple[FailedAttempt, ...]
    cleaned_up: tuple[RemoteLogSegmentId, ...]
    pending_clean_ups: tuple[PendingCleanUp, ...]
    partitions: tuple[PartitionReport, ...]
    left_out: tuple[tuple[str, str], ...]
    problems: tuple[LogDirProblem, ...]

    @property
    def copied_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.copied)

    @property
    def complete(self) -> bool:
        """True if this run left no work that it could have done."""
        return (
            not self.problems
            and not self.pending_clean_ups
            and all(partition.complete for partition in self.partitions)
        )
