"""A metadata state at feature level 2, with the phases of a move, and imports, in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import Epochs
from rlmm.migration_phase import Migration, MigrationPhase
from rlmm.records.control_records import (
    FeatureLevel,
    MigrationPhaseChange,
    SegmentsImported,
    ShadowWritten,
)
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows.imported import as_imported
from rlmm.rows.migration import find_migration
from rlmm.rows.shadow import find_shadow
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlmm.state_world import World, epochs

CLUSTER_ID = "uQ3nwGfCRBaWmpNKO5XJXg"
TOPIC_ID = Uuid(b"metadata-topic-1")


class MigrationWorld(World):
    """Level 2, no phase yet."""

    def __init__(self) -> None:
        super().__init__()
        self.accept(FeatureLevel(2, -1))

    @property
    def migration(self) -> Migration:
        return find_migration(self.rows)

    def a_phase(self, phase: MigrationPhase) -> MigrationPhaseChange:
        return MigrationPhaseChange(phase, self.migration.since, CLUSTER_ID, "ann", "the move")

    def phases(self, *phases: MigrationPhase) -> None:
        """One after the other; all is in the topic before the truth goes back to it."""
        for phase in phases:
            shadow = find_shadow(self.rows)
            if phase is MigrationPhase.KAFKA and shadow is not None and shadow.rows:
                self.accept(ShadowWritten(shadow.begun, TOPIC_ID, 3, self.offset))
            self.accept(self.a_phase(phase))

    def of_topic(
        self,
        number: int,
        start: int,
        end: int,
        leader_epochs: Sequence[tuple[int, int]] = ((4, 0),),
        *,
        state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED,
        custom_metadata: bytes | None = None,
    ) -> RemoteLogSegmentMetadata:
        """A segment as Kafka's manager keeps it: without anything that is ours."""
        return replace(
            self.an_add(number, start, end, leader_epochs),
            state=state,
            custom_metadata=custom_metadata,
            token=-1,
            writer=None,
            upload_deadline_ms=-1,
        )

    def an_import(
        self,
        *segments: RemoteLogSegmentMetadata,
        at: int = 0,
        last: bool = True,
        lineage: Epochs | None = None,
        highest: Epochs = (),
        log_start: int | None = None,
    ) -> SegmentsImported:
        since = self.migration.since
        rows = tuple(encode_segment_row(as_imported(each, since)) for each in segments)
        if lineage is None:
            lineage = epochs((4, 0)) if last and segments else ()
        if log_start is None:
            log_start = 0 if last and segments else -1
        return SegmentsImported(self.partition, since, at, last, rows, lineage, highest, log_start)
