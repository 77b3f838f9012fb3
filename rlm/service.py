"""The remote log manager of one node in sidecar mode: finds, claims, copies, cleans up, answers.

Composition only: decisions stand in the pure planners (`leadership`, `copy_plan`, `backoff`,
`leader_transition`, `follower_fetch`, `list_offsets`), their execution in `scanner`,
`partition_driver`, `copier` and `clean_up`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from rlm.broker_view import BrokerView
from rlm.events import OnEvent, ignore_event
from rlm.follower_fetch import FollowerFetchAnswer, FollowerFetchQuery
from rlm.leader_transition import LeaderTransitionAnswer, LeaderTransitionQuery
from rlm.limits import Ambient, CopyLimits, Identity
from rlm.list_offsets import OffsetAnswer
from rlm.log_dir import LogDirProblem
from rlm.partition_status import PartitionStatus
from rlm.read_request import IndexType, RecordsEnd, RecordsRequest
from rlm.run_report import CopyRunReport
from rlm.tier_store import TierStores
from rlm.topic_filter import TopicFilter
from rlm.worker_pool import WorkerPool
from rlmm.manager import RemoteLogMetadataManager
from rlmm.segment import TopicIdPartition


class RemoteLogManager:
    """One per node. All methods belong to the event loop it was started on."""

    def __init__(
        self,
        manager: RemoteLogMetadataManager,
        pool: WorkerPool,
        stores: TierStores,
        *,
        log_dirs: Sequence[Path],
        broker: BrokerView | None,
        topics: TopicFilter,
        identity: Identity,
        ambient: Ambient,
        limits: CopyLimits | None = None,
        on_event: OnEvent = ignore_event,
    ) -> None:
        """`broker` None: standalone directories, of which this node counts as leader."""
        raise NotImplementedError

    async def start(self) -> None:
        """Check the cluster marker of every store, then begin to scan and copy.

        Refused when a store belongs to another cluster or takes no writes; the node must not run.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Cancel copies, clean up after them as far as `shutdown_deadline_s` allows. Idempotent."""
        raise NotImplementedError

    async def run_once(self) -> CopyRunReport:
        """One shot instead of `start`: scan, claim, copy everything eligible, clean up, report.

        Cancelling it (Ctrl-C) leaves nothing that the next run does not finish or clean up; call
        `close` afterwards in any case.
        """
        raise NotImplementedError

    def pause_copying(self) -> None:
        """Kill switch of this node: start no copy; copies under way finish."""
        raise NotImplementedError

    def resume_copying(self) -> None:
        """Undo `pause_copying`."""
        raise NotImplementedError

    @property
    def copying_paused(self) -> bool:
        """Whether the node's kill switch is on."""
        raise NotImplementedError

    def status(self, partition: TopicIdPartition) -> PartitionStatus:
        """Where one partition stands. NotFound if neither the view nor a log directory has it."""
        raise NotImplementedError

    def statuses(self) -> tuple[PartitionStatus, ...]:
        """All partitions of the view and of the log directories, by topic and partition."""
        raise NotImplementedError

    def problems(self) -> tuple[LogDirProblem, ...]:
        """What the last scan could not take, with the reason."""
        raise NotImplementedError

    async def leader_transition(self, query: LeaderTransitionQuery) -> LeaderTransitionAnswer:
        """Where a new leader goes on copying (design 6.6). Read-only."""
        raise NotImplementedError

    async def follower_fetch(self, query: FollowerFetchQuery) -> FollowerFetchAnswer:
        """What a follower needs to rebuild from the tier (design 6.6, KIP-405)."""
        raise NotImplementedError

    async def offsets(self, partition: TopicIdPartition, timestamp: int) -> OffsetAnswer:
        """ListOffsets: one of `list_offsets.OffsetSpec`, or a time in ms since the epoch."""
        raise NotImplementedError

    def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Verified bytes [start, end) of a finished segment's `.log`; NotFound at the first step."""
        raise NotImplementedError

    def open_index(self, segment_uuid: Uuid, index: IndexType) -> AsyncIterator[bytes]:
        """Verified bytes of one index; NotFound at the first step if the segment has none."""
        raise NotImplementedError

    def records(
        self,
        partition: TopicIdPartition,
        request: RecordsRequest,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Stored batches, or JSON lines, from an offset on, across segment borders.

        InvalidRequest(offset) below the log start, NotFound above the highest copied offset or in
        a lost range, all at the first step.
        """
        raise NotImplementedError
