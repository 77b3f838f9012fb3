"""What the control plane needs of its neighbours, as protocols.

`MetadataPort` is the part used here of `rlmm.manager.RemoteLogMetadataManager`, `PoolPort` that of
`rlm.worker_pool.WorkerPool`; tests put something between them and the real ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kafka_formats.kafka_uuid import Uuid
from rlm.copy_job import CopyJob, CopyResult, OnProgress
from rlm.damage import Survey
from rlm.held_read import HeldRead
from rlm.read_request import (
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentResolver,
)
from rlm.repair_jobs import CheckJob, CheckResult, GatherJob, GatherResult
from rlm.segment_survey import SurveyJob
from rlmm.apply_claim_forecast import AskedClaim, ClaimForecast
from rlmm.manager import ClaimAnswer
from rlmm.partition_state import PartitionState, Restart, TopicPolicy
from rlmm.queries import SegmentAnswer, ServedSegment
from rlmm.records import (
    GapsAllowed,
    LogStart,
    LostRange,
    NodeContested,
    NodeRegistration,
    PartitionAdopted,
    PartitionClaim,
)
from rlmm.row_nodes import RegisteredNode
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)


class SegmentRows(Protocol):
    """Writes and reads of single segments.

    Writes return the metadata offset once applied here, or raise Fenced, Conflict, InvalidRequest
    (nothing was changed), RetryLater (nothing was appended) or OutcomeUnknown (look at the row).
    """

    async def add_remote_log_segment_metadata(
        self, metadata: RemoteLogSegmentMetadata, *, deadline_s: float
    ) -> int:
        """COPY_SEGMENT_STARTED; the same content again has no effect."""
        ...

    async def update_remote_log_segment_metadata(
        self, update: RemoteLogSegmentMetadataUpdate, *, deadline_s: float
    ) -> int:
        """Every later state; the same content again has no effect."""
        ...

    def segment(self, tip: TopicIdPartition, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        """The row as applied here."""
        ...


class MetadataPort(SegmentRows, Protocol):
    """The rest of what claims, plans and answers need."""

    @property
    def applied_offset(self) -> int:
        """The metadata offset that every read below is true at."""
        ...

    async def claim_partition(self, claim: PartitionClaim, *, deadline_s: float) -> ClaimAnswer:
        """Commit a claim and read the partition at the claim's own offset."""
        ...

    async def record_log_start(self, record: LogStart, *, deadline_s: float) -> int:
        """Move the log start offset forward."""
        ...

    async def record_lost_range(self, record: LostRange, *, deadline_s: float) -> int:
        """Record offsets that are gone before they were copied."""
        ...

    async def record_gaps_allowed(self, record: GapsAllowed, *, deadline_s: float) -> int:
        """Offsets without a batch are legal from here on."""
        ...

    async def register_node(self, record: NodeRegistration, *, deadline_s: float) -> int:
        """Take the node id on."""
        ...

    async def contest_node(self, record: NodeContested, *, deadline_s: float) -> int:
        """Say that this process lives, though another one took its node id on."""
        ...

    def registered_node(self, node_id: int) -> RegisteredNode | None:
        """Which process has a node id."""
        ...

    def on_partition_leadership_changes(self, tips: Iterable[TopicIdPartition]) -> None:
        """These have another leader or epoch: an empty answer of before does not count for them."""
        ...

    def is_ready(self, tip: TopicIdPartition) -> bool:
        """Whether an empty answer about it may be believed."""
        ...

    def partition_state(self, tip: TopicIdPartition) -> PartitionState | None:
        """The partition's rows, or None if the log never heard of it."""
        ...

    def is_deleted(self, tip: TopicIdPartition) -> bool:
        """Whether the partition was known, and its deletion is finished."""
        ...

    def partitions(self) -> Iterator[TopicIdPartition]:
        """All partitions of the view."""
        ...

    def left_overs(self, tip: TopicIdPartition) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Rows in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED."""
        ...

    def find_segment(self, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        """A segment's row by its id alone."""
        ...

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> SegmentAnswer | None:
        """The finished segment that serves an offset."""
        ...

    def served_segments(self, of: PartitionState, first: int, last: int) -> Iterator[ServedSegment]:
        """Which segment serves which of the readable offsets `first` to `last`, ascending."""
        ...

    def forecast_claim(self, asked: AskedClaim) -> ClaimForecast:
        """What a claim would leave, by the very rules that would judge it."""
        ...

    def list_remote_log_segments(
        self, tip: TopicIdPartition, leader_epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """All rows of a partition, or of one epoch of it."""
        ...

    async def put_remote_partition_delete_metadata(
        self, metadata: RemotePartitionDeleteMetadata, *, deadline_s: float
    ) -> int:
        """A step in the deletion of a whole partition."""
        ...

    async def record_partition_adopted(self, record: PartitionAdopted, *, deadline_s: float) -> int:
        """End a partition's adoption."""
        ...

    def is_caught_up(self) -> bool:
        """Whether everything completed before this start is applied here."""
        ...

    def measured_time_ms(self) -> int:
        """How much time nodes have measured since the log began."""
        ...

    def restart(self) -> Restart | None:
        """The restart from a snapshot that the cluster began with."""
        ...

    def topic_policy(self, topic: str, topic_id: Uuid | None = None) -> TopicPolicy:
        """Retention and kill switches of a topic."""
        ...


class PoolPort(Protocol):
    """The worker processes. Cancelling a call, or closing an iterator, ends its work there."""

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        """Verify and upload one segment. Returned, raised or cancelled: no byte follows."""
        ...

    async def check(self, job: CheckJob) -> CheckResult:
        """Compare objects with what the metadata has of them, byte by byte."""
        ...

    async def gather(self, job: GatherJob) -> GatherResult:
        """Look for a whole copy of a segment, and put its files together."""
        ...

    async def survey(self, job: SurveyJob) -> Survey:
        """Which batches of a damaged segment are good."""
        ...

    def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        """Verified bytes of a `.log`."""
        ...

    def hold_log(self, request: LogRequest) -> AbstractAsyncContextManager[HeldRead]:
        """The same, once the first are there, for a client's own connection."""
        ...

    def read_index(self, request: IndexRequest) -> AsyncIterator[bytes]:
        """Verified bytes of one index."""
        ...

    def read_records(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Whole batches, or whole JSON lines."""
        ...
