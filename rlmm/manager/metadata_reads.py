"""The reads of the remote log metadata manager: local, from the view, true at `applied_offset`.

They are Kafka's (KIP-405) and ours: states of partitions, policies, and look-ups of readers without
a broker. Only if the manager's `is_ready` is true does an empty answer mean that there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.claim_forecast import AskedClaim, ClaimForecast, forecast_claim
from rlmm.metadata_shadow import OutboxRow, Shadow, ShadowLag, TopicPosition
from rlmm.migration_phase import TOPIC_PHASES, Migration
from rlmm.partition_state import Mode, PartitionState, Restart, TopicPolicy, Totals
from rlmm.rows import queries
from rlmm.rows.cluster_settings import SettingRow
from rlmm.rows.coverage import covered_ranges
from rlmm.rows.migration import acknowledged, acknowledged_from, find_migration
from rlmm.rows.nodes import RegisteredNode, find_node
from rlmm.rows.queries import ListPosition, MetPartition, SegmentAnswer, ServedSegment
from rlmm.rows.reads import (
    highest_recorded,
    read_feature_level,
    read_measured_time,
    read_restart,
    read_segment,
    read_totals,
)
from rlmm.rows.rows import RowReader
from rlmm.rows.shadow import (
    find_outbox_row,
    find_shadow,
    is_kept_up,
    outbox_rows,
    topic_positions,
)
from rlmm.rows.values import Covered
from rlmm.segment import RemoteLogSegmentMetadata
from rlmm.view.partition_states import PartitionStates
from rlmm.view.segment_changes import SegmentChanges
from rlmm.view.view import View


class MetadataReads:
    """The reads. The task that applies the log reports every commit to `_states` and `_changes`."""

    def __init__(self, view: View, *, states_kept_max: int) -> None:
        self._view = view
        self._states = PartitionStates(view, kept_max=states_kept_max)
        self._changes = SegmentChanges(view)

    @property
    def applied_offset(self) -> int:
        """The metadata offset at which every read is valid; -1 before the first record."""
        return self._view.applied_offset

    def digest(self) -> bytes:
        """16 bytes, equal on every node at the same applied offset."""
        return self._view.digest()

    def rows(self) -> RowReader:
        """The rows themselves, for reads in a thread, where this object's caches are not used."""
        return self._view

    def feature_level(self) -> int:
        """The finalised feature level."""
        return read_feature_level(self._view)[0]

    def restart(self) -> Restart | None:
        """The restart from a snapshot that this cluster began with; None: it began empty."""
        return read_restart(self._view)

    def registered_node(self, node_id: int) -> RegisteredNode | None:
        """The process that has a node id; None: the id was never registered."""
        return find_node(self._view, node_id)

    def registered_nodes(self) -> tuple[RegisteredNode, ...]:
        """Every node id that a process ever registered with, in the order of ids; the same tuple
        until one of them changes.
        """
        return self._states.nodes()

    def cluster_settings(self) -> tuple[SettingRow, ...]:
        """Every setting of the cluster, a node or topics, by key and scope; the same tuple until
        one of them changes.
        """
        return self._states.settings()

    async def other_cluster_settings(self, known: tuple[SettingRow, ...]) -> tuple[SettingRow, ...]:
        """Wait until the settings differ from `known`, and return them."""
        while (now := self.cluster_settings()) == known:
            self._states.forgotten.clear()
            await self._states.forgotten.wait()
        return now

    def migration(self) -> Migration:
        """The phase of the move from Kafka's metadata topic."""
        return find_migration(self._view)

    def is_kafkas(self, tip: TopicIdPartition) -> bool:
        """True for a delegated partition while Kafka's metadata topic is authoritative for it."""
        if self.migration().phase not in TOPIC_PHASES:
            return False
        state = self.partition_state(tip)
        return state is not None and state.mode is Mode.DELEGATED

    def migration_acknowledged(self, since: int) -> frozenset[int]:
        """Ids of the brokers that stopped in the frozen phase that began at this offset."""
        return acknowledged(self._view, since)

    def migration_brokers(self, since: int) -> frozenset[int]:
        """Ids of the brokers of the move, by their last acknowledgement: those that stopped in the
        frozen phase that began at this offset, or in a later one. Each has a node with its id.
        """
        return acknowledged_from(self._view, since)

    def shadow(self) -> Shadow | None:
        """The shadow in Kafka's metadata topic; None: no switch has begun, or the move is over."""
        return find_shadow(self._view)

    def shadow_lag(self) -> ShadowLag | None:
        """The lag of Kafka's metadata topic; None: it is not kept up."""
        shadow = find_shadow(self._view)
        if shadow is None or shadow.incomplete or not is_kept_up(self._view):
            return None
        oldest = next(outbox_rows(self._view), None)
        return ShadowLag(shadow.rows, None if oldest is None else oldest.time_ms)

    def topic_positions(self) -> tuple[TopicPosition, ...]:
        """The offsets up to which Kafka's metadata topic was read, by its partitions."""
        return tuple(topic_positions(self._view))

    def outbox(self) -> Iterator[OutboxRow]:
        """The changes that wait for Kafka's metadata topic, ascending. Read it at once."""
        return outbox_rows(self._view)

    def outbox_row(self, offset: int) -> OutboxRow | None:
        """The change of this metadata offset, if it waits."""
        return find_outbox_row(self._view, offset)

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> SegmentAnswer | None:
        """The finished segment that serves `offset` in `leader_epoch`, clamped to the lineage."""
        return queries.segment_for_offset(self._view, tip, leader_epoch, offset)

    def next_segment_with_txn_index(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int
    ) -> SegmentAnswer | None:
        """The first segment at or after `offset` that serves the epoch and has a
        transaction index.
        """
        return queries.next_segment_with_txn_index(self._view, tip, leader_epoch, offset)

    def highest_offset_for_epoch(self, tip: TopicIdPartition, leader_epoch: int) -> int | None:
        """The highest offset ever copied in the epoch, inclusive; None if none was."""
        return queries.highest_offset_for_epoch(self._view, tip, leader_epoch)

    def highest_recorded(self, tip: TopicIdPartition, leader_epoch: int) -> int | None:
        """The highest offset ever copied in the epoch, even outside the lineage."""
        return highest_recorded(self._view, tip, leader_epoch)

    def coverage(
        self, tip: TopicIdPartition, leader_epoch: int, start: int, end: int
    ) -> Iterator[Covered]:
        """The ranges of an epoch that overlap [`start`, `end`], each with the segment that serves
        it, even outside the lineage.
        """
        return covered_ranges(self._view, tip, leader_epoch, start, end)

    def forecast_claim(self, asked: AskedClaim) -> ClaimForecast:
        """The state after a claim, by the rules of apply; writes nothing."""
        return forecast_claim(self._view, asked)

    def list_remote_log_segments(
        self,
        tip: TopicIdPartition,
        leader_epoch: int | None = None,
        *,
        after: ListPosition | None = None,
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """All segments but finished deletions, by `list_position`, those after `after`."""
        return queries.list_segments(self._view, tip, leader_epoch, after=after)

    def partition_state(self, tip: TopicIdPartition) -> PartitionState | None:
        """The partition's state; None if no record was ever about it."""
        return self._states.state(tip)

    def segments_changed_at(self, tip: TopicIdPartition) -> int:
        """A metadata offset that identifies the present state of the partition's segments: if it is
        the same as before, none of their rows changed.
        """
        return self._changes.changed_at(tip)

    def segments_changed_since(self, tip: TopicIdPartition, offset: int) -> tuple[Uuid, ...] | None:
        """The segments whose rows changed after an earlier `segments_changed_at` of this process;
        None: they are not remembered.
        """
        return self._changes.since(tip, offset)

    def is_deleted(self, tip: TopicIdPartition) -> bool:
        """True if the partition was known, and its deletion is finished."""
        return queries.is_partition_tombstone(self._view, tip)

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Every partition that has a row."""
        return queries.partitions(self._view)

    def find_partition(self, topic: str, partition: int) -> TopicIdPartition | None:
        """The partition in the newest incarnation of the topic; None if that does not have it."""
        return self._states.find_partition(topic, partition)

    def met_partitions(self, topic: str) -> Iterator[MetPartition]:
        """The partitions of all topics of this name, each with the offset of its first record."""
        return queries.met_partitions(self._view, topic)

    def served_segments(self, of: PartitionState, first: int, last: int) -> Iterator[ServedSegment]:
        """The segments of the readable offsets `first` to `last`, ascending."""
        return queries.served_segments(self._view, of, first, last)

    def serves_any(self, tip: TopicIdPartition, lineage: Epochs, first: int, last: int) -> bool:
        """True if a segment serves an offset from `first` to `last` (inclusive) by that lineage."""
        return queries.serves_any(self._view, tip, lineage, first, last)

    def segment(self, tip: TopicIdPartition, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        """One segment's row."""
        return queries.segment(self._view, tip, segment_uuid)

    def find_segment(self, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        """One segment's row, by its id alone."""
        return read_segment(self._view, segment_uuid)

    def left_overs(self, tip: TopicIdPartition) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Rows in COPY_SEGMENT_STARTED or DELETE_SEGMENT_STARTED."""
        return queries.left_overs(self._view, tip)

    def newest_topic_id(self, topic: str) -> Uuid:
        """The id of the newest topic of that name; zero: none is known."""
        return queries.newest_topic_id(self._view, topic)

    def topic_policy(self, topic: str, topic_id: Uuid | None = None) -> TopicPolicy:
        """A topic name's policy, or the defaults; with `topic_id` that of this topic alone."""
        return queries.topic_policy(self._view, topic, topic_id)

    def measured_time_ms(self) -> int:
        """The time that nodes have measured since the log began."""
        return read_measured_time(self._view).ms

    def totals(self) -> Totals:
        """Counts over everything."""
        return read_totals(self._view)
