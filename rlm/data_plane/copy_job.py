"""Jobs and results of copies. Plain values, which cross processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.batch_scan import BATCH_BYTES_MAX
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.producer_snapshot import OpenTransaction
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import ProducerSnapshotOrigin
from rlm.local_log.damage import Run
from rlm.local_log.gap_rule import Offsets
from rlmm.segment import RemoteLogSegmentId


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Bounds of one copy. Memory: at most `part_bytes` times (`parts_parallel` + 1) for parts, and
    `batch_bytes_max` for a batch that spans pieces.
    """

    part_bytes: int = 12 * 2**20
    parts_parallel: int = 2
    batch_bytes_max: int = BATCH_BYTES_MAX
    progress_interval_ms: int = 200


@dataclass(frozen=True, slots=True)
class SourceRuns:
    """A copy's source that is not one whole file: `runs` in order, from the damaged segment [base,
    next base) in the job's directory and from fetched batches. `producers_at_base`: a producer
    snapshot at the first offset of the copy, used where that directory has none.
    """

    base_offset: int
    next_base_offset: int
    runs: tuple[Run, ...]
    producers_at_base: bytes | None = None


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One attempt to copy one sealed segment.

    `start_offset` is the segment's base offset, `end_offset` (inclusive) the next segment's base
    minus one. `leader_epochs` are the lineage's entries in that range; `lineage_checkpoint` is the
    leader epoch checkpoint for the tier, which the worker cuts at the next base. Batches below
    `log_start_offset` (-1: none) are history no reader gets, so the lineage may lack their epochs.
    No byte is sent at or after `upload_deadline_ms` (since the epoch). `prefix` starts every key of
    `store`. `event_timestamp_ms`, `max_timestamp_ms` and `txn_index_empty` are those of the
    COPY_SEGMENT_STARTED record, repeated in the manifest. `gaps_allowed` and `once_there`: see
    `gap_rule.GapWatch`. `source` None: the `.log` as it is. `open_at_base`: the transactions open
    at the base as an earlier copy of these bytes recorded them; a snapshot there counts instead.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    directory: Path
    leader_epochs: Epochs
    lineage_checkpoint: bytes
    broker_id: int
    event_timestamp_ms: int
    max_timestamp_ms: int
    txn_index_empty: bool
    store: str
    prefix: str
    upload_deadline_ms: int
    log_start_offset: int = -1
    limits: UploadLimits = UploadLimits()
    gaps_allowed: bool = False
    once_there: tuple[Offsets, ...] = ()
    source: SourceRuns | None = None
    open_at_base: tuple[OpenTransaction, ...] | None = None

    @property
    def file_base_offset(self) -> int:
        """The base offset of the segment's files in the directory."""
        return self.start_offset if self.source is None else self.source.base_offset

    @property
    def file_next_base_offset(self) -> int:
        """The base offset of the segment behind these files."""
        return self.next_base_offset if self.source is None else self.source.next_base_offset

    @property
    def next_base_offset(self) -> int:
        return self.end_offset + 1


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A whole, verified, durable upload. `max_timestamp_ms` is the batches' own maximum; `cleaned`:
    the batches show the work of Kafka's cleaner, so later gaps are legal.
    """

    custom_metadata: CustomMetadata
    log_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool
    producer_snapshot: ProducerSnapshotOrigin
    cleaned: bool = False


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Bytes of the copy that the store has, and in total."""

    bytes_done: int
    bytes_total: int


OnProgress = Callable[[CopyProgress], None]
