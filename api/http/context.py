"""Ports and settings of the HTTP interface.

The metadata is `rlmm.manager.manager.RemoteLogMetadataManager` itself; the other parts are
protocols.
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
from rlm.data_plane.read_request import RecordsEnd, RecordsRequest, WaitingRead
from rlm.delegated.calls import BrokerCalls
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
from rlm.retention.acceptance import AskedAcceptance
from rlm.retention.delete_records_plan import RecordDeletion
from rlm.retention.retention_plan import RetentionPlan
from rlmm.log.quorum_records import Voter
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.quorum.admin import CanStop
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreLocation


class RemoteLog(Protocol):
    """The remote log manager, met by `rlm.service.RemoteLogManager`."""

    def damage_of(self, partition: TopicIdPartition, /) -> Damage | None:
        """Missing offsets of the damaged segment that stops the partition here, if one does."""
        ...

    def is_mending(self, partition: TopicIdPartition, /) -> bool:
        """True while missing offsets of its damaged segment are asked for."""
        ...

    def try_again(self, partition: TopicIdPartition, /) -> None:
        """Copy the partition again at once, without the rest of its back-off."""
        ...

    def status(self, partition: TopicIdPartition, /) -> PartitionStatus:
        """Status of a partition. NotFound: neither the view nor a log directory has it."""
        ...

    def partitions(self) -> Sequence[TopicIdPartition]:
        """All partitions of the view and of the log directories, by topic and partition."""
        ...

    def problems(self) -> Sequence[LogDirProblem]:
        """Directories and files that the last scan could not take, with reasons."""
        ...

    def node_problems(self) -> Sequence[NodeProblem]:
        """Problems that keep the node from a part of its work."""
        ...


class Answers(Protocol):
    """Answers to brokers and readers, met by `rlm.fetch.tier_answers.Answers`."""

    def claim_outlook(self, partition: TopicIdPartition, /) -> ClaimOutlook | NoOutlook:
        """Outcome of this node's next claim, as things are and after a reset."""
        ...

    def leader_transition(self, query: LeaderTransitionQuery, /) -> LeaderTransitionAnswer:
        """Offset and state with which a new leader goes on copying."""
        ...

    async def follower_fetch(self, query: FollowerFetchQuery, /) -> FollowerFetchAnswer:
        """State from which a follower rebuilds its log."""
        ...

    async def offsets(self, partition: TopicIdPartition, timestamp: int, /) -> OffsetAnswer:
        """Answer of ListOffsets."""
        ...


class Reads(Protocol):
    """Bytes from the tier, met by `rlm.fetch.resolved_reads.ResolvedReads`."""

    def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AsyncIterator[bytes]:
        """Verified bytes [start, end) of a finished segment's `.log`."""
        ...

    def waiting_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AbstractAsyncContextManager[WaitingRead]:
        """Bytes as `open_log`, for the client's own connection."""
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
    """The metadata quorum, met by `rlmm.quorum.admin.QuorumAdmin`. Conflict NOT_LEADER, with the
    leader's id: this node does not lead.
    """

    async def add_voter(self, voter: Voter, /, *, deadline_s: float) -> None:
        """Return once the observer votes. AlreadyExists: its node id votes already."""
        ...

    async def remove_voter(
        self, node_id: int, directory_id: str | None, /, *, deadline_s: float
    ) -> None:
        """Return once the voter is removed. NotFound: it was no voter."""
        ...

    async def transfer(self, node_id: int | None, /, *, deadline_s: float) -> None:
        """Return once another node leads."""
        ...

    async def accept_cut(self, *, deadline_s: float) -> None:
        """Let this node go on without what its cut tail had; any node may be asked."""
        ...

    async def check_feature_level(
        self, level: int, finalised: int, /, *, observers_upgraded: bool, deadline_s: float
    ) -> None:
        """Return if every node knows `level`. Conflict: one does not. RetryLater: one does not
        answer.
        """
        ...

    def can_stop(self, node_id: int, /) -> CanStop:
        """Answer if the other voters that keep up are a majority."""
        ...


class AuditTrail(Protocol):
    """The audit of this node, met by `rlm.node_files.audit_log.AuditLog`."""

    def note(self, line: AuditLine, /) -> None:
        """Write a line about what was done; returns at once."""
        ...

    async def newest(
        self, before: AuditPosition | None, limit: int, matches: Matches, /
    ) -> AuditPage:
        """At most `limit` lines, newest first."""
        ...


class GarbageCollector(Protocol):
    """Garbage collection, met by `rlm.reconcile.collector.Collector`."""

    def start(self, request: CollectionRequest, by: str, /) -> Collection:
        """Begin a pass. Conflict: one is running. Refused: nothing may be deleted now."""
        ...

    def collection(self, id_: Uuid, /) -> Collection:
        """The running pass or the last one. NotFound for any other."""
        ...

    async def look_up(self, ids: Sequence[RemoteLogSegmentId], /) -> list[Known]:
        """Knowledge of each segment, behind a barrier. RetryLater: no barrier can be had now."""
        ...


class SegmentRepair(Protocol):
    """Repairs of damaged segments, met by `rlm.repair.repairs.Repairs`."""

    def start(self, request: RepairRequest, by: str, /) -> RepairRun:
        """Begin a run. Conflict: one is under way. NotFound: there is no such partition."""
        ...

    def run_of(self, id_: Uuid, /) -> RepairRun:
        """The run under way or the last one. NotFound for any other."""
        ...


class Retention(Protocol):
    """Retention of partitions, met by `rlm.retention.expirer.Expirer`."""

    async def plan(
        self,
        tip: TopicIdPartition,
        percent_max: float | None = None,
        policy: TopicPolicy | None = None,
        /,
    ) -> RetentionPlan:
        """A dry run, by `policy` if given. NotFound: nothing of the partition is tiered."""
        ...

    async def accept(self, tip: TopicIdPartition, asked: AskedAcceptance, /) -> RetentionPlan:
        """Let the next pass, and no other, take what the plan says now. Conflict: another node
        leads, or the plan is another than was shown.
        """
        ...

    def accepted_text(self, tip: TopicIdPartition, /) -> str | None:
        """The acceptance that stands until the next pass."""
        ...

    async def delete_records(
        self, tip: TopicIdPartition, before: int, /, *, apply: bool
    ) -> RecordDeletion:
        """Move the log start to `before` if `apply`. Conflict: not by this node, or not now."""
        ...


class Switches(Protocol):
    """This node's kill switches, met by `rlm.node_files.kill_switches.KillSwitches`."""

    def pause_of(self, switch: Switch, /) -> Pause | None:
        """The pause in force; None while the work goes on."""
        ...

    async def pause(self, switch: Switch, /, *, by: str, why: str = "") -> None:
        """Pause the work. RetryLater: the pause would not survive a restart."""
        ...

    async def resume(self, switch: Switch, /, *, by: str) -> None:
        """Resume the work. RetryLater: it stays paused."""
        ...


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Identity of the node. `kafka_cluster_id` None: a standalone directory of any cluster."""

    cluster_id: str
    kafka_cluster_id: str | None
    node_id: int
    version: str


@dataclass(frozen=True, slots=True)
class LogControl:
    """Format and levels of the node's log."""

    format: Literal["text", "json"]
    levels: LogLevels


def always_ready() -> tuple[str, ...]:
    """Readiness of a node that waits for nothing."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The parts of the application.

    `anonymous_role` is the role of a request without a token from this machine; None: everybody
    needs a token. `not_ready` names what is missing until the node may serve. `broker` None: it
    serves no broker's plug-in.
    """

    manager: RemoteLogMetadataManager
    rlm: RemoteLog
    answers: Answers
    reads: Reads
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
    broker: BrokerCalls | None = None
