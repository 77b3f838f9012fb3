"""The partitions of this node's log directories, one row each, and their changes by events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import CopyEvent, SegmentCopied, SegmentDeleted, SegmentProgress
from rlm.copy.partition_work import PartitionWork
from rlm.copy.run_report import CopiedSegment, FailedAttempt
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata


@dataclass(slots=True)
class RunLog:
    """Attempts of a one-shot run, for its report only."""

    copied: list[CopiedSegment] = field(default_factory=list)
    failed: list[FailedAttempt] = field(default_factory=list)
    cleaned_up: list[RemoteLogSegmentId] = field(default_factory=list)


@dataclass(slots=True)
class WorkRows:
    """All rows, bounded by the log directories. `run_log` is None unless a report is being made."""

    now_ms: Callable[[], int]
    rows: dict[TopicIdPartition, PartitionWork] = field(default_factory=dict)
    run_log: RunLog | None = None

    def all(self) -> Iterable[PartitionWork]:
        """Every row."""
        return self.rows.values()

    def on_event(self, event: CopyEvent) -> None:
        """Keep the progress for the status page, and the results for a run's report."""
        if isinstance(event, SegmentProgress):
            work = self.rows.get(event.segment_id.partition)
            if work is not None and work.copying is not None:
                work.copying = replace(
                    work.copying, bytes_done=event.bytes_done, bytes_total=event.bytes_total
                )
        elif self.run_log is None:
            return
        elif isinstance(event, SegmentCopied):
            copied = CopiedSegment(
                event.segment_id, event.start_offset, event.end_offset, event.size_bytes
            )
            self.run_log.copied.append(copied)
        elif isinstance(event, SegmentDeleted):
            self.run_log.cleaned_up.append(event.segment_id)

    def clean_up_failed(self, row: RemoteLogSegmentMetadata, kind: str, text: str) -> None:
        """Show the failure in the partition's status."""
        work = self.rows.get(row.segment_id.partition)
        if work is not None:
            work.failed(kind, f"clean-up of segment {row.segment_id.id}: {text}", self.now_ms())
