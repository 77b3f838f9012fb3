"""What the HTTP interface is given: exactly what it calls, as protocols, and its settings.

`RemoteLogMetadata` is met by `rlmm.manager.RemoteLogMetadataManager`, `RemoteLog` by
`rlm.service.RemoteLogManager`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from api.limits import ApiLimits
from api.metrics import NodeMetrics
from api.streaming import StreamSlots
from api.tokens import Role, TokenBook
from kafka_formats.kafka_uuid import Uuid
from rlm.audit import AuditLine
from rlm.audit_log import AuditPage, AuditPosition, Matches
from rlm.claim_outlook import ClaimOutlook, NoOutlook
from rlm.collection_plan import Known
from rlm.collector import Collection, CollectionRequest
from rlm.damage import Damage
from rlm.flow_control import FlowControl
from rlm.follower_fetch import FollowerFetchAnswer, FollowerFetchQuery
from rlm.held_read import HeldRead
from rlm.kill_switches import Pause, Switch
from rlm.leader_transition import LeaderTransitionAnswer, LeaderTransitionQuery
from rlm.list_offsets import OffsetAnswer
from rlm.log_dir import LogDirProblem
from rlm.log_levels import LogLevels
from rlm.node_problem import NodeProblem
from rlm.partition_status import PartitionStatus
from rlm.read_request import IndexType, RecordsEnd, RecordsRequest
from rlm.record_deletion import RecordDeletion
from rlm.repair_run import RepairRequest, RepairRun
from rlm.retention_plan import RetentionPlan
from rlm.scrub_results import ScrubResults
from rlmm.history import HistoryEntry
from rlmm.log.quorum_records import Voter
from rlmm.metadata_log import LogDescription
from rlmm.partition_state import PartitionState, TopicPolicy, Totals
from rlmm.queries import ListPosition, MetPartition, SegmentAnswer, ServedSegment
from rlmm.quorum.admin import CanStop
from rlmm.records import (
    ClaimReset,
    GapsAllowed,
    OffsetsSkipped,
    PartitionDeleteUndo,
    PartitionModeChange,
    TopicPolicyChange,
)
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from rsm_backends.store_config import StoreLocation


class RemoteLogMetadata(Protocol):
    """The metadata: reads are local and immediate, writes return their metadata offset."""

    def partitions(self) -> Iterator[TopicIdPartition]:
        """All partitions of the view."""
        ...

    @property
    def applied_offset(self) -> int:
        """Metadata offset up to which reads are true."""
        ...

    async def wait_for_offset(self, offset: int, /, *, deadline_s: float) -> None:
        """Return once `offset` is applied; RetryLater after the deadline."""
        ...

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None:
        """The finished segment that serves `offset` within the epoch."""
        ...

    def next_segment_with_txn_index(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None:
        """The first such segment, at or after `offset`, that has a transaction index."""
        ...

    def list_remote_log_segments(
        self,
        tip: TopicIdPartition,
        leader_epoch: int | None = None,
        /,
        *,
        after: ListPosition | None = None,
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """All segments of the partition, or of one of its epochs, that stand behind `after`."""
        ...

    def is_ready(self, tip: TopicIdPartition, /) -> bool:
        """Whether an empty answer means that there is nothing."""
        ...

    def feature_level(self) -> int:
        """The finalised one."""
        ...

    async def finalise_feature_level(self, level: int, /) -> int:
        """Every node applies by the rules of `level` from there on."""
        ...

    async def set_topic_policy(self, record: TopicPolicyChange, /) -> int:
        """Replace a topic's policy; Conflict when it is not the one that the record names."""
        ...

    async def put_remote_partition_delete_metadata(
        self, record: RemotePartitionDeleteMetadata, /
    ) -> int:
        """A step in a partition's deletion; Conflict when it follows another one than it names."""
        ...

    async def undo_partition_delete(self, record: PartitionDeleteUndo, /) -> int:
        """Take a mark back; Conflict when another one stands, or the deletion started."""
        ...

    async def record_gaps_allowed(self, record: GapsAllowed, /) -> int:
        """Offsets without a batch are legal in a partition from here on."""
        ...

    async def skip_offsets(self, record: OffsetsSkipped, /) -> int:
        """Give up offsets that can't be copied."""
        ...

    async def reset_claim(self, record: ClaimReset, /) -> int:
        """Void a claim, and let the next one cut the lineage. Conflict: it is not the last one."""
        ...

    async def set_partition_mode(self, record: PartitionModeChange, /) -> int:
        """Change who copies a partition; voids its claim. Conflict: the mode was changed since."""
        ...

    def partition_state(self, tip: TopicIdPartition, /) -> PartitionState | None:
        """The partition's rows, or None for one the log never heard of."""
        ...

    def find_partition(self, topic: str, partition: int, /) -> TopicIdPartition | None:
        """The partition in the newest incarnation of the topic."""
        ...

    def met_partitions(self, topic: str, /) -> Iterator[MetPartition]:
        """The partitions of all topics of this name, each with where the log first met it."""
        ...

    def served_segments(
        self, of: PartitionState, first: int, last: int, /
    ) -> Iterator[ServedSegment]:
        """Which segment serves which of the readable offsets `first` to `last`, ascending."""
        ...

    def segment(
        self, tip: TopicIdPartition, segment_uuid: Uuid, /
    ) -> RemoteLogSegmentMetadata | None:
        """One segment by its id."""
        ...

    def newest_topic_id(self, topic: str, /) -> Uuid:
        """Of the newest topic of that name; zero: none is known."""
        ...

    def topic_policy(self, topic: str, topic_id: Uuid | None = None, /) -> TopicPolicy:
        """The topic's policy; the defaults where none was ever set."""
        ...

    def totals(self) -> Totals:
        """Segments by state, bytes, partitions."""
        ...

    def digest(self) -> bytes:
        """Sixteen bytes that are equal on nodes with equal rows."""
        ...

    async def segment_history(
        self, segment_id: RemoteLogSegmentId, /, *, limit: int
    ) -> tuple[HistoryEntry, ...]:
        """The records about one segment, as far as the log has them."""
        ...

    def describe(self) -> LogDescription:
        """The metadata log: leader, epoch, offsets, voters."""
        ...

    def snapshot_age_ms(self) -> int | None:
        """How long ago this process last took a snapshot; None if it has not yet."""
        ...


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
    """What this node took away or moved, met by `rlm.audit_log.AuditLog`."""

    def note(self, line: AuditLine, /) -> None:
        """Write a line about what was done; returns at once."""
        ...

    async def newest(
        self, before: AuditPosition | None, limit: int, matches: Matches, /
    ) -> AuditPage:
        """At most `limit` lines, newest first."""
        ...


class GarbageCollector(Protocol):
    """Met by `rlm.collector.Collector`."""

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
    """Met by `rlm.repairs.Repairs`."""

    def start(self, request: RepairRequest, by: str, /) -> RepairRun:
        """Begin a run. Conflict: one is under way. NotFound: there is no such partition."""
        ...

    def run_of(self, id_: Uuid, /) -> RepairRun:
        """The run under way or the last one. NotFound for any other."""
        ...


class Retention(Protocol):
    """What retention would take, met by `rlm.expirer.Expirer`."""

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
    """This node's kill switches, met by `rlm.kill_switches.KillSwitches`."""

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

    manager: RemoteLogMetadata
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
