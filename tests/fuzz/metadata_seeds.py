"""One of each of our own metadata records, from which fuzzed bytes begin."""

from __future__ import annotations

from kafka_formats.kafka_uuid import Uuid
from rlmm.metadata_shadow import TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import (
    ClaimReset,
    ClusterSetting,
    ExpiryMark,
    ExpiryTakenBack,
    FeatureLevel,
    GapsAllowed,
    LogStart,
    LostRange,
    MigrationPhaseChange,
    NodeContested,
    NodeRegistration,
    NodeRemoved,
    NodeSilence,
    NodeStopped,
    OffsetsSkipped,
    PartitionAdopted,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    Reconciled,
    SegmentMissing,
    SegmentsImported,
    ShadowWritten,
    TopicPolicyChange,
)
from rlmm.records.node_facts import NodeFacts, Program, ReadAddress
from rlmm.records.records import MetadataRecord
from rlmm.records.setting_scope import CLUSTER, of_topic
from tests.rlmm.state_world import NODE_1, ORDERS, epochs

_SEGMENT = Uuid(b"segment-id-16-by")
OURS: tuple[MetadataRecord, ...] = (
    PartitionClaim(
        ORDERS, Mode.SIDECAR, 6, NODE_1, 12, epochs((0, 0), (6, 70)), 55, unknown_tags=((7, b"x"),)
    ),
    LogStart(ORDERS, 9, 4, 1_000),
    LogStart(ORDERS, 9, 4, 1_000, policy_offset=3, mark_offset=7, seen_ms=86_400_000),
    ExpiryMark(ORDERS, 9, 4, 1_000, 3, 86_400_000, 2, 5_000, joins=True, why="retention"),
    ExpiryTakenBack(ORDERS, 7, hold=True, who="ann", why="the policy was wrong"),
    LostRange(ORDERS, 9, 10, 12, "retention"),
    PartitionModeChange(ORDERS, Mode.PAUSED, -1),
    TopicPolicyChange("orders", TopicPolicy(retention_ms=5, copy_paused=True), -1),
    ClaimReset(ORDERS, 7, 40),
    PartitionDeleteUndo(ORDERS, 8),
    FeatureLevel(2, -1, unknown_tags=((9, b"yy"),)),
    PartitionAdopted(ORDERS, 17),
    SegmentMissing(ORDERS, _SEGMENT, 12),
    Reconciled(400),
    GapsAllowed(ORDERS, "compacted"),
    OffsetsSkipped(ORDERS, 9, 10, 12, "skipped by ann"),
    NodeRegistration(NODE_1, unknown_tags=((7, b"new"),)),
    NodeRegistration(NODE_1, NodeFacts(ReadAddress("replica-1", 9_092, "a"))),
    NodeContested(NODE_1, 5),
    NodeRegistration(NODE_1, NodeFacts(None, Program("0.1.0", 1, 1), "http://n1:1", "n1:2", 3)),
    NodeSilence(1, 5, 6, fenced=True),
    NodeStopped(NODE_1, 5),
    NodeRemoved(1, 5),
    ClusterSetting(of_topic("logs.*"), "topics.tiered", "true", "ann", "the audit asks", -1),
    ClusterSetting(CLUSTER, "copying.paused", None, "ann", "", 5),
    MigrationPhaseChange(MigrationPhase.SWITCHING, 5, "kafka-cluster", "ann", "now"),
    SegmentsImported(ORDERS, 9, 0, last=False, rows=(b"a row", b"another")),
    SegmentsImported(
        ORDERS, 9, 2, last=True, lineage=epochs((4, 9)), highest=epochs((4, 20)), log_start_offset=9
    ),
    ShadowWritten(9, _SEGMENT, 50, 12, (TopicPosition(3, 70, 12),)),
    ShadowWritten(9, _SEGMENT, 50, incomplete="lost", foreign="a broker"),
)
