"""The metadata log for a switch: writes of this node, and reads of its view."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.comparing import compare
from rlm.migration.handing_over import HandingOver
from rlm.migration.import_plan import import_problems, plan_import
from rlm.migration.kafka_cache import KafkaCache
from rlm.migration.switching import DifferenceError
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_shadow import TopicPosition
from rlmm.migration_phase import Migration, MigrationPhase
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import MigrationPhaseChange, SegmentsImported, ShadowWritten
from rlmm.rows import queries
from rlmm.rows.coverage import covered_ranges
from rlmm.rows.queries import SegmentAnswer
from rlmm.rows.reads import highest_recorded, read_partition_row
from rlmm.rows.rows import RowReader
from rlmm.rows.values import Covered
from rlmm.segment import RemoteLogSegmentMetadata

IMPORT_DEADLINE_S = 15.0
"""Deadline of each record of an import, in seconds."""


@dataclass(frozen=True, slots=True)
class LogSide:
    """See `switching.LogPort`. `who` is recorded with each change of the phase."""

    metadata: RemoteLogMetadataManager
    who: str
    handing_over: HandingOver

    def leads(self) -> bool:
        """True on the quorum leader's node, once its view is up to date."""
        return self.handing_over.leads()

    def standing(self) -> Migration:
        """The phase in force, by the log as applied on this node."""
        return self.metadata.migration()

    def acknowledged(self, since: int) -> Collection[int]:
        """The brokers that acknowledged the phase whose record is at metadata offset `since`."""
        return self.metadata.migration_acknowledged(since)

    def partitions(self) -> Collection[TopicIdPartition]:
        """All delegated partitions in the log."""
        return [tip for tip in self.metadata.partitions() if self._is_delegated(tip)]

    def _is_delegated(self, tip: TopicIdPartition) -> bool:
        state = self.metadata.partition_state(tip)
        return state is not None and state.mode is Mode.DELEGATED

    async def bring(self, tip: TopicIdPartition, cache: KafkaCache | None, since: int) -> None:
        """Import a partition, record by record. Raises DifferenceError if the metadata log would
        refuse one of its rows.
        """
        wrong = [] if cache is None else await asyncio.to_thread(import_problems, tip, cache)
        if wrong:
            raise DifferenceError(f"the metadata log would refuse it: {'; '.join(wrong)}")
        row = read_partition_row(self.metadata.rows(), tip)
        # From the counters, since decoding the rows of a large partition takes seconds.
        recorded = 0 if row is None else row.copy_started + row.copy_finished + row.delete_started
        records = await asyncio.to_thread(_planned, tip, cache, since, recorded)
        for record in records:
            await self.metadata.record_move(record, deadline_s=IMPORT_DEADLINE_S)

    def newest_topic(self, name: str) -> Uuid:
        """The id of the topic of this name that was recorded last."""
        return self.metadata.newest_topic_id(name)

    async def differences(self, tip: TopicIdPartition, cache: KafkaCache | None) -> Sequence[str]:
        """Sentences about all differences that a broker would see."""
        standing = self.standing()
        imported = standing.since if standing.phase is MigrationPhase.SWITCHING else None
        return await asyncio.to_thread(_compared, self.metadata, tip, cache, imported)

    def behind_topic(self) -> int:
        """The number of changes that the topic does not have yet."""
        shadow = self.metadata.shadow()
        return 0 if shadow is None else shadow.rows

    async def begin_shadow(self, since: int, topic_id: Uuid, ends: Sequence[int]) -> None:
        """Record the ends of the topic's partitions after the import: from there on, only this
        cluster may write to them.
        """
        positions = tuple(TopicPosition(partition, end) for partition, end in enumerate(ends))
        await self.metadata.record_move(
            ShadowWritten(since, topic_id, len(ends), positions=positions)
        )

    async def move(self, before: Migration, phase: MigrationPhase, why: str) -> None:
        """Record the next phase."""
        await self.metadata.record_move(
            MigrationPhaseChange(phase, before.since, before.kafka_cluster_id, self.who, why)
        )

    async def hand_over(self, since: int) -> bool:
        """See `HandingOver.beside_broker`."""
        return await self.handing_over.beside_broker(since)


@dataclass(frozen=True, slots=True)
class _Rows:
    """`comparing.Recorded` over the rows, for use in a thread: the manager caches decoded rows, and
    is not thread-safe.
    """

    rows: RowReader

    def partition_state(self, tip: TopicIdPartition, /) -> PartitionState | None:
        return queries.partition_state(self.rows, tip)

    def list_remote_log_segments(
        self, tip: TopicIdPartition, /
    ) -> Iterator[RemoteLogSegmentMetadata]:
        return queries.list_segments(self.rows, tip)

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None:
        return queries.segment_for_offset(self.rows, tip, leader_epoch, offset)

    def highest_offset_for_epoch(self, tip: TopicIdPartition, leader_epoch: int, /) -> int | None:
        return queries.highest_offset_for_epoch(self.rows, tip, leader_epoch)

    def highest_recorded(self, tip: TopicIdPartition, leader_epoch: int, /) -> int | None:
        return highest_recorded(self.rows, tip, leader_epoch)

    def coverage(
        self, tip: TopicIdPartition, leader_epoch: int, start: int, end: int, /
    ) -> Iterator[Covered]:
        return covered_ranges(self.rows, tip, leader_epoch, start, end)


def _planned(
    tip: TopicIdPartition, cache: KafkaCache | None, since: int, recorded: int
) -> list[SegmentsImported]:
    return list(plan_import(tip, cache, since=since, recorded=recorded))


def _compared(
    metadata: RemoteLogMetadataManager,
    tip: TopicIdPartition,
    cache: KafkaCache | None,
    since: int | None,
) -> list[str]:
    return [each.text for each in compare(_Rows(metadata.rows()), tip, cache, since=since)]
