"""The jobs and results of copies, as plain values that cross processes."""

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
    """The limits of one copy. It needs at most `part_bytes` * (`parts_parallel` + 1) of memory for
    parts, and `batch_bytes_max` for a batch that spans pieces.
    """

    part_bytes: int = 12 * 2**20
    parts_parallel: int = 2
    batch_bytes_max: int = BATCH_BYTES_MAX
    progress_interval_ms: int = 200


@dataclass(frozen=True, slots=True)
class SourceRuns:
    """The source of a copy that is not one whole file: `runs`, in order, of the damaged segment
    [base, next base) in the job's directory and of fetched batches. `producers_at_base` is a
    producer snapshot at the copy's first offset, used if that directory has none.
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
    leader epoch checkpoint for the tier, which the worker truncates at the next base. Batches below
    `log_start_offset` (-1: none) are not served to readers, so the lineage may lack their epochs.
    No byte is sent at or after `upload_deadline_ms` (since the epoch). `prefix` begins every key in
    `store`. `event_timestamp_ms`, `max_timestamp_ms` and `txn_index_empty` are those of the
    COPY_SEGMENT_STARTED record, and are repeated in the manifest. `gaps_allowed` and `once_there`:
    see `gap_rule.GapWatch`. `source` None: the `.log` is copied as it is. `open_at_base`: the
    transactions open at the base, as recorded by an earlier copy of these bytes; used if there is
    no usable producer snapshot at the base.
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
        """The base offset of the segment after these files."""
        return self.next_base_offset if self.source is None else self.source.next_base_offset

    @property
    def next_base_offset(self) -> int:
        return self.end_offset + 1


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a whole, verified and durable upload. `max_timestamp_ms` is that of the
    batches. `cleaned`: Kafka's cleaner has rewritten some of the batches, so gaps are legal from
    now on.
    """

    custom_metadata: CustomMetadata
    log_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool
    producer_snapshot: ProducerSnapshotOrigin
    cleaned: bool = False


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The bytes of the copy that the store has, and the bytes in total."""

    bytes_done: int
    bytes_total: int


OnProgress = Callable[[CopyProgress], None]
