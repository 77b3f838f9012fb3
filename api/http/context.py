"""What the HTTP interface is given: what it calls, and its settings.

The metadata is `rlmm.manager.manager.RemoteLogMetadataManager` itself; the rest are protocols,
`RemoteLog` met by `rlm.service.RemoteLogManager`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from api.http.api_limits import ApiLimits
from api.http.streaming import StreamSlots
from api.http.tokens import Role, TokenBook
from api.metrics.metrics import NodeMetrics
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditLine
from rlm.control.log_levels import LogLevels
from rlm.control.node_problem import NodeProblem
from rlm.copy.claim_outlook import ClaimOutlook, NoOutlook
from rlm.copy.partition_status import PartitionStatus
from rlm.data_plane.read_request import HeldRead, RecordsEnd, RecordsRequest
from rlm.fetch.follower_start import FollowerFetchAnswer, FollowerFetchQuery
from rlm.fetch.leader_transition import LeaderTransitionAnswer, LeaderTransitionQuery
from rlm.fetch.list_offsets import OffsetAnswer
from rlm.format.manifest import IndexType
from rlm.local_log.damage import Damage
from rlm.local_log.log_dir import LogDirProblem
from rlm.node_files.audit_log import AuditPage, AuditPosition, Matches
from rlm.node_files.kill_switches import Pause, Switch
from rlm.node_files.scrub_results import ScrubResults
from rlm.quota.flow_control import FlowControl
from rlm.reconcile.collection_plan import Known
from rlm.reconcile.collector import Collection, CollectionRequest
from rlm.repair.repair_run import RepairRequest, RepairRun
from rlm.retention.delete_records_plan import RecordDeletion
from rlm.retention.retention_plan import RetentionPlan
from rlmm.log.quorum_records import Voter
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.quorum.admin import CanStop
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreLocation


class RemoteLog(Protocol):
    """The remote log manager: what it is doing, and bytes from the tier."""

    def damage_of(self, partition: TopicIdPartition, /) -> Damage | None:
        """What a damaged segment that stops the partition here lacks."""
        ...

    def try_again(self, partition: TopicIdPartition, /) -> None:
        """Without the rest of its back-off."""
        ...

    def status(self, partition: TopicIdPartition, /) -> PartitionStatus:
        """One partition; NotFound if neither the view nor a log directory has it."""
        ...

    def partitions(self) -> Sequence[TopicIdPartition]:
        """All partitions of the view and of the log directories, by topic and partition."""
        ...

    def problems(self) -> Sequence[LogDirProblem]:
        """What the last scan of the log directories could not take, with the reason."""
        ...

    def node_problems(self) -> Sequence[NodeProblem]:
        """What keeps the node as a whole from a part of its work; empty when nothing does."""
        ...

    def claim_outlook(self, partition: TopicIdPartition, /) -> ClaimOutlook | NoOutlook:
        """What this node's next claim would do, as things are and after a reset."""
        ...

    async def leader_transition(self, query: LeaderTransitionQuery, /) -> LeaderTransitionAnswer:
        """Where a new leader goes on copying."""
        ...

    async def follower_fetch(self, query: FollowerFetchQuery, /) -> FollowerFetchAnswer:
        """What a follower needs to rebuild from the tier."""
        ...

    async def offsets(self, partition: TopicIdPartition, timestamp: int, /) -> OffsetAnswer:
        """ListOffsets."""
        ...

    def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AsyncIterator[bytes]:
        """Verified bytes [start, end) of a finished segment's `.log`."""
        ...

    def hold_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AbstractAsyncContextManager[HeldRead]:
        """The same bytes, verified from the first on, for a client's own connection."""
        ...

    def open_index(self, segment_uuid: Uuid, index: IndexType, /) -> AsyncIterator[bytes]:
        """Verified bytes of one index."""
        ...

    def records(
        self,
        partition: TopicIdPartition,
        request: RecordsRequest,
        on_end: Callable[[RecordsEnd], None] | None = None,
        /,
    ) -> AsyncIterator[bytes]:
        """Stored batches, or JSON lines, from an offset on."""
        ...


class Quorum(Protocol):
    """Changes of the metadata quorum, met by `rlmm.quorum.admin.QuorumAdmin`. On another node than
    the leader's: Conflict with the reason NOT_LEADER, which names it.
    """

    async def add_voter(self, voter: Voter, /, *, deadline_s: float) -> None:
        """Return once the observer votes. AlreadyExists: its node id does."""
        ...

    async def remove_voter(
        self, node_id: int, directory_id: str | None, /, *, deadline_s: float
    ) -> None:
        """Return once it votes no more. NotFound: it did not."""
        ...

    async def transfer(self, node_id: int | None, /, *, deadline_s: float) -> None:
        """Return once this node leads no more."""
        ...

    async def accept_cut(self, *, deadline_s: float) -> None:
        """This node, whichever it is, goes on without what its cut tail had."""
        ...

    async def check_feature_level(
        self, level: int, finalised: int, /, *, observers_upgraded: bool, deadline_s: float
    ) -> None:
        """Return if every node knows `level`. Conflict: one does not. RetryLater: one is silent."""
        ...

    def can_stop(self, node_id: int, /) -> CanStop:
        """Whether the others are a majority that keeps up."""
        ...


class AuditTrail(Protocol):
    """What this node took away or moved, met by `rlm.node_files.audit_log.AuditLog`."""

    def note(self, line: AuditLine, /) -> None:
        """Write a line about what was done; returns at once."""
        ...

    async def newest(
        self, before: AuditPosition | None, limit: int, matches: Matches, /
    ) -> AuditPage:
        """At most `limit` lines, newest first."""
        ...


class GarbageCollector(Protocol):
    """Met by `rlm.reconcile.collector.Collector`."""

    def start(self, request: CollectionRequest, by: str, /) -> Collection:
        """Begin a pass. Conflict: one is running. Refused: nothing may be deleted now."""
        ...

    def collection(self, id_: Uuid, /) -> Collection:
        """The running pass or the last one. NotFound for any other."""
        ...

    async def look_up(self, ids: Sequence[RemoteLogSegmentId], /) -> list[Known]:
        """What the metadata knows of each, behind a barrier. RetryLater: there is none now."""
        ...


class SegmentRepair(Protocol):
    """Met by `rlm.repair.repairs.Repairs`."""

    def start(self, request: RepairRequest, by: str, /) -> RepairRun:
        """Begin a run. Conflict: one is under way. NotFound: there is no such partition."""
        ...

    def run_of(self, id_: Uuid, /) -> RepairRun:
        """The run under way or the last one. NotFound for any other."""
        ...


class Retention(Protocol):
    """What retention would take, met by `rlm.retention.expirer.Expirer`."""

    async def plan(
        self,
        tip: TopicIdPartition,
        percent_max: float | None = None,
        policy: TopicPolicy | None = None,
        /,
    ) -> RetentionPlan:
        """A dry run, by another policy if one is given; NotFound where nothing is tiered."""
        ...

    def accept(self, tip: TopicIdPartition, percent: float, /) -> None:
        """The next pass may take up to this share. Conflict: another node leads."""
        ...

    async def delete_records(
        self, tip: TopicIdPartition, before: int, /, *, apply: bool
    ) -> RecordDeletion:
        """Log start moves to `before`, if `apply`. Conflict: not by this node, or not now."""
        ...


class Switches(Protocol):
    """This node's kill switches, met by `rlm.node_files.kill_switches.KillSwitches`."""

    def pause_of(self, switch: Switch, /) -> Pause | None:
        """The pause that stands, None where that work goes on."""
        ...

    async def pause(self, switch: Switch, /, *, by: str, why: str = "") -> None:
        """Nothing of it begins from here on. RetryLater: it would not survive a restart."""
        ...

    async def resume(self, switch: Switch, /, *, by: str) -> None:
        """It goes on. RetryLater: it stays paused."""
        ...


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Who answers. `kafka_cluster_id` None: a standalone directory of any cluster."""

    cluster_id: str
    kafka_cluster_id: str | None
    node_id: int
    version: str


@dataclass(frozen=True, slots=True)
class LogControl:
    """The log that the node writes."""

    format: Literal["text", "json"]
    levels: LogLevels


def always_ready() -> tuple[str, ...]:
    """The readiness check of a node that has nothing to wait for."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Everything the application is made of.

    `anonymous_role` is what a request without a token may do when it comes from this machine; None
    asks everybody for a token. `not_ready` names what is missing until the node may serve; empty
    when it is ready. `pause` lets the event loop run (a sleep of 0 s).
    """

    manager: RemoteLogMetadataManager
    rlm: RemoteLog
    quorum: Quorum
    audit: AuditTrail
    collector: GarbageCollector
    retention: Retention
    switches: Switches
    flow: FlowControl
    log: LogControl
    scrubs: ScrubResults
    repairs: SegmentRepair
    identity: NodeIdentity
    tokens: TokenBook
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    store_names: Sequence[str]
    store_locations: dict[str, StoreLocation] = field(default_factory=dict)
    default_store: str
    sleep: Callable[[float], Awaitable[None]]
    new_uuid: Callable[[], Uuid]
    anonymous_role: Role | None = None
    limits: ApiLimits = field(default_factory=ApiLimits)
    metrics: NodeMetrics = field(default_factory=NodeMetrics)
    streams: StreamSlots = field(default_factory=StreamSlots)
    not_ready: Callable[[], Sequence[str]] = always_ready
