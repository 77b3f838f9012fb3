"""A tier for tests: segments copied by the data plane, and a resolver that serves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.copy_job import CopyJob, CopyResult, UploadLimits
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.read_request import (
    IndexRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentPiece,
    TieredSegment,
)
from rlm.format.manifest import IndexType
from rlm.local_log.log_dir import LocalPartition, LocalSegment, find_partitions
from rlm.local_log.segment_facts import segment_facts
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.memory import MemoryStore

STORE = "main"
PREFIX = "tier/"
NOW_MS = 1_800_000_000_000


def now_ms() -> int:
    """A clock that stands still."""
    return NOW_MS


def copy_job(partition: LocalPartition, segment: LocalSegment, *, attempt: int = 0) -> CopyJob:
    """The job the control plane would make of a partition that was compacted once."""
    assert segment.next_base_offset is not None
    facts = segment_facts(segment, partition.leader_epochs)
    id_ = Uuid(segment.base_offset.to_bytes(8, "big") + attempt.to_bytes(8, "big"))
    return CopyJob(
        segment_id=RemoteLogSegmentId(partition.partition, id_),
        start_offset=segment.base_offset,
        end_offset=segment.next_base_offset - 1,
        directory=partition.directory,
        leader_epochs=facts.leader_epochs,
        lineage_checkpoint=partition.checkpoint_bytes,
        broker_id=1,
        event_timestamp_ms=NOW_MS,
        max_timestamp_ms=facts.max_timestamp_ms,
        txn_index_empty=facts.txn_index_empty,
        store=STORE,
        prefix=PREFIX,
        upload_deadline_ms=NOW_MS + 60_000,
        log_start_offset=partition.local_log_start_offset,
        gaps_allowed=True,
    )


def only_partition(log_dir: Path) -> LocalPartition:
    """The one partition of a log directory, found without trouble."""
    scan = find_partitions([log_dir], kafka_cluster_id=None)
    assert scan.problems == ()
    (partition,) = scan.partitions
    return partition


def first_job(log_dir: Path) -> CopyJob:
    """The job for the first segment of the one partition."""
    partition = only_partition(log_dir)
    return copy_job(partition, partition.segments[0])


def small_parts(job: CopyJob, part_bytes: int) -> CopyJob:
    """The same with multipart uploads of tiny parts."""
    return replace(job, limits=UploadLimits(part_bytes=part_bytes, parts_parallel=2))


def tiered(job: CopyJob, result: CopyResult) -> TieredSegment:
    """What the metadata log would know after COPY_SEGMENT_FINISHED."""
    return TieredSegment(
        job.segment_id, job.start_offset, job.end_offset, job.prefix, result.custom_metadata
    )


@dataclass
class Pieces:
    """A resolver over pieces in order."""

    pieces: list[SegmentPiece] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        self.asked.append(offset)
        return next((piece for piece in self.pieces if piece.valid_until >= offset), None)


@dataclass
class Tier:
    """A memory store, the data plane on it, and what was copied."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore(now_ms))
    pieces: Pieces = field(default_factory=Pieces)
    chunk_cache_bytes_max: int = 0

    def __post_init__(self) -> None:
        self.plane = DataPlane(
            {STORE: self.store},
            now_ms=now_ms,
            chunk_cache_bytes_max=self.chunk_cache_bytes_max,
            read_ahead_bytes_max=self.chunk_cache_bytes_max,
        )

    async def copy_all(self, partition: LocalPartition) -> None:
        """Copy every sealed segment that is decided."""
        for segment in partition.segments[:-1]:
            assert segment.next_base_offset is not None
            if segment.next_base_offset <= partition.last_stable_offset_bound:
                await self.copy(copy_job(partition, segment))

    async def copy(self, job: CopyJob) -> TieredSegment:
        result = await self.plane.copy(job)
        segment = tiered(job, result)
        self.pieces.pieces.append(SegmentPiece(segment, segment.start_offset, segment.end_offset))
        return segment

    async def records(self, request: RecordsRequest) -> tuple[bytes, RecordsEnd]:
        ends: list[RecordsEnd] = []
        stream = self.plane.read_records(request, self.pieces, ends.append)
        data = b"".join([part async for part in stream])
        (end,) = ends
        return data, end

    async def index(self, segment: TieredSegment, index: IndexType) -> bytes:
        stream = self.plane.read_index(IndexRequest(segment, index))
        return b"".join([part async for part in stream])

    async def keys(self) -> Sequence[str]:
        page = await self.store.list_page("")
        return [info.key for info in page.objects]
