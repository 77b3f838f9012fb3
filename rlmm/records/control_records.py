"""Strandline's own metadata records: control records with private type ids, which Kafka skips."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.metadata_shadow import TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.node_facts import NO_FACTS, NodeFacts
from rlmm.records.record_fields import Tags
from rlmm.records.setting_scope import SettingScope
from rlmm.segment import Incarnation

WHY_CHARACTERS_MAX = 500


class ControlRecordType(IntEnum):
    """Private control record types. The numbers are in the log and never reused."""

    PARTITION_CLAIM = 1000
    LOG_START = 1001
    LOST_RANGE = 1002
    PARTITION_MODE = 1003
    TOPIC_POLICY = 1004
    CLAIM_RESET = 1005
    PARTITION_DELETE_UNDO = 1006
    FEATURE_LEVEL = 1007
    PARTITION_ADOPTED = 1008
    SEGMENT_MISSING = 1009
    RECONCILED = 1010
    GAPS_ALLOWED = 1011
    OFFSETS_SKIPPED = 1012
    NODE_REGISTRATION = 1013
    NODE_CONTESTED = 1014
    TIME_PASSED = 1016
    NODE_SILENCE = 1017
    NODE_STOPPED = 1018
    NODE_REMOVED = 1019
    CLUSTER_SETTING = 1020
    EXPIRY_MARK = 1021
    EXPIRY_TAKEN_BACK = 1022
    MIGRATION_PHASE = 1023
    SEGMENTS_IMPORTED = 1024
    SHADOW_WRITTEN = 1025
    MIGRATION_ACKNOWLEDGED = 1026
    SNAPSHOT_ROW = 1100  # only in snapshots: rlmm/rows/snapshot_rows.py


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extensible:
    unknown_tags: Tags = ()
    """Tagged fields of newer programs, which are kept."""


@dataclass(frozen=True, slots=True)
class PartitionClaim(_Extensible):
    """A node became leader of the partition. Its metadata offset is the token of that leadership.

    `leader_epochs` is the broker's leader epoch checkpoint, whose last epoch is `leader_epoch`;
    after a restart from a snapshot also the lower epochs that the store's copies contain.
    `claim_number` counts the claims of this incarnation. `local_log_start_offset` is the broker's
    at the claim, for information; -1 if unknown.
    """

    partition: TopicIdPartition
    mode: Mode
    leader_epoch: int
    incarnation: Incarnation
    claim_number: int
    leader_epochs: Epochs
    local_log_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class LogStart(_Extensible):
    """The tier's log start moves forward to `offset` in epoch `offset_epoch`.

    `policy_offset`: the offset of the topic's policy whose retention moves it; None if retention
    does not. `mark_offset`: the metadata offset of the expiry mark that it follows, which its
    proposer saw for `seen_ms` (by its monotonic clock; the whole time for an admin who empties the
    trash); -1 if retention keeps no trash, None if neither moves it.
    """

    partition: TopicIdPartition
    token: int
    offset_epoch: int
    offset: int
    policy_offset: int | None = None
    mark_offset: int | None = None
    seen_ms: int = -1


@dataclass(frozen=True, slots=True)
class LostRange(_Extensible):
    """Offsets [`start`, `end`] (inclusive) were deleted before they could be copied."""

    partition: TopicIdPartition
    token: int
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class PartitionModeChange(_Extensible):
    """An admin's change of mode; `replaces_offset` is the `mode_offset` it replaces, or -1."""

    partition: TopicIdPartition
    mode: Mode
    replaces_offset: int


@dataclass(frozen=True, slots=True)
class TopicPolicyChange(_Extensible):
    """An admin's policy for a topic; its own `policy.offset` is not part of the record.

    `replaces_offset` is the `offset` of the policy it replaces, -1 for the defaults. A
    `policy.topic_id` of zero means the newest topic of the name, or the first that will be known by
    it.
    """

    topic: str
    policy: TopicPolicy
    replaces_offset: int


@dataclass(frozen=True, slots=True)
class ClaimReset(_Extensible):
    """An admin voids the claim with the token `replaces_offset`. The next claim may come from any
    node at the same or a higher leader epoch, and may cut the lineage at `cut_at` or above. None:
    it may cut no more than any other claim.
    """

    partition: TopicIdPartition
    replaces_offset: int
    cut_at: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionDeleteUndo(_Extensible):
    """Undoes the DELETE_PARTITION_MARKED at metadata offset `replaces_offset`."""

    partition: TopicIdPartition
    replaces_offset: int


@dataclass(frozen=True, slots=True)
class FeatureLevel(_Extensible):
    """`level` defines the records after this one; `replaces_offset`: of the last one, or -1."""

    level: int
    replaces_offset: int


@dataclass(frozen=True, slots=True)
class PartitionAdopted(_Extensible):
    """The claimant has recorded every whole segment of the partition in the store, after a restart
    from a snapshot. Until then unfinished copies of other nodes are not cleaned up.
    """

    partition: TopicIdPartition
    token: int


@dataclass(frozen=True, slots=True)
class SegmentMissing(_Extensible):
    """An admin states that the store has lost a segment; `finished_at` is that of its row."""

    partition: TopicIdPartition
    segment: Uuid
    finished_at: int


@dataclass(frozen=True, slots=True)
class Reconciled(_Extensible):
    """An admin states that a full listing was compared since the restart: deletes may go on."""

    restart_offset: int


@dataclass(frozen=True, slots=True)
class GapsAllowed(_Extensible):
    """Offsets without a batch are legal from now on, by Kafka's cleaner or an admin (`why`)."""

    partition: TopicIdPartition
    why: str


@dataclass(frozen=True, slots=True)
class OffsetsSkipped(_Extensible):
    """An admin gives up [`start`, `end`] (inclusive), which can't be copied: a lost range decided
    by a person. It may be above the next offset, never below. `token` is that of the claim in
    force.
    """

    partition: TopicIdPartition
    token: int
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class NodeRegistration(_Extensible):
    """A process began to work with this incarnation, before its first claim. Claims of the node id
    with a different directory are void from this record on. `facts` are valid until the process's
    next start.
    """

    incarnation: Incarnation
    facts: NodeFacts = NO_FACTS


@dataclass(frozen=True, slots=True)
class NodeContested(_Extensible):
    """This process is still running, although a different directory registered at
    `registered_offset`: neither may write.
    """

    incarnation: Incarnation
    registered_offset: int


@dataclass(frozen=True, slots=True)
class TimePassed(_Extensible):
    """A node measured `passed_ms` since it applied the TimePassed at `since_offset` (-1: none)."""

    since_offset: int
    passed_ms: int


@dataclass(frozen=True, slots=True)
class NodeSilence(_Extensible):
    """The quorum's leader of `leader_epoch` found that the node that registered at
    `registered_offset` has not fetched for too long (`fenced`), or fetches again (KIP-631).
    """

    node_id: int
    registered_offset: int
    leader_epoch: int
    fenced: bool


@dataclass(frozen=True, slots=True)
class NodeStopped(_Extensible):
    """The process that registered at `registered_offset` ends in order."""

    incarnation: Incarnation
    registered_offset: int


@dataclass(frozen=True, slots=True)
class NodeRemoved(_Extensible):
    """An admin removes the node that registered at `registered_offset` from the list of nodes."""

    node_id: int
    registered_offset: int


@dataclass(frozen=True, slots=True)
class ClusterSetting(_Extensible):
    """An admin's setting for the cluster, a node or topics; a `value` of None removes it.

    `who` set it, and `why` is stored with it. `replaces_offset` is the metadata offset of the
    setting that it replaces, -1 for none. Keys and values that this program does not know are kept.
    """

    scope: SettingScope
    key: str
    value: str | None
    who: str
    why: str
    replaces_offset: int


@dataclass(frozen=True, slots=True)
class ExpiryMark(_Extensible):
    """Retention expires all records below `offset`, in epoch `offset_epoch`: readers start there at
    once, the log start follows after `trash_ms`. `policy_offset` is that of the topic's policy that
    decided it. `segments` and `size_bytes` are moved to the trash by this mark. `joins`: it is
    merged with the mark before, whose time begins anew.
    """

    partition: TopicIdPartition
    token: int
    offset_epoch: int
    offset: int
    policy_offset: int
    trash_ms: int
    segments: int
    size_bytes: int
    joins: bool
    why: str


@dataclass(frozen=True, slots=True)
class ExpiryTakenBack(_Extensible):
    """An admin undoes all expiry marks of a partition; `replaces_offset` is `Expiry.offset`.
    `hold`: retention marks nothing until the topic's policy changes; without it such a hold ends.
    """

    partition: TopicIdPartition
    replaces_offset: int
    hold: bool
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class MigrationPhaseChange(_Extensible):
    """The next phase of the move from the metadata topic of the Kafka cluster `kafka_cluster_id`.
    `replaces_offset` is `Migration.since`, -1 before the first.
    """

    phase: MigrationPhase
    replaces_offset: int
    kafka_cluster_id: str
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class SegmentsImported(_Extensible):
    """Segments of a partition by its metadata topic, in the phase SWITCHING that began at metadata
    offset `since`. `rows` are encoded segment rows (`rlmm/rows/imported.py`), and `at` is the
    number of those in the records before: 0 drops all that is recorded of the partition.

    The `last` record has `lineage`, the highest offset ever copied in each epoch (`highest`, by
    epoch), and the log start (-1: unknown). One without any segment, epoch and offset removes the
    partition.
    """

    partition: TopicIdPartition
    since: int
    at: int
    last: bool
    rows: tuple[bytes, ...] = ()
    lineage: Epochs = ()
    highest: Epochs = ()
    log_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class MigrationAcknowledged(_Extensible):
    """The broker knows of the phase that began at metadata offset `since`, in which no broker
    writes, and none of its earlier writes is under way any more.
    """

    broker_id: int
    since: int


@dataclass(frozen=True, slots=True)
class ShadowWritten(_Extensible):
    """The writer of the shadow that began with `Shadow.begun` found every change up to
    `written_up_to` in the topic, and read its partitions up to `positions` (only those that
    changed, by partition). `incomplete` and `foreign`: see `Shadow`; empty if there is no reason.
    """

    begun: int
    topic_id: Uuid
    partitions: int
    written_up_to: int = -1
    positions: tuple[TopicPosition, ...] = ()
    incomplete: str = ""
    foreign: str = ""


RestartRecord = PartitionAdopted | SegmentMissing | Reconciled
NodeRecord = NodeRegistration | NodeContested | NodeStopped | NodeRemoved
MoveRecord = MigrationPhaseChange | SegmentsImported | MigrationAcknowledged | ShadowWritten
ControlRecord = (
    PartitionClaim
    | LogStart
    | LostRange
    | PartitionModeChange
    | TopicPolicyChange
    | ClaimReset
    | PartitionDeleteUndo
    | FeatureLevel
    | RestartRecord
    | GapsAllowed
    | OffsetsSkipped
    | NodeRecord
    | TimePassed
    | NodeSilence
    | ClusterSetting
    | ExpiryMark
    | ExpiryTakenBack
    | MoveRecord
)
