"""The writes of the move from Kafka's own metadata topic: a part of the metadata manager."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rlmm.manager.metadata_limits import WRITE_DEADLINE_S
from rlmm.records.control_records import (
    MigrationAcknowledged,
    MigrationPhaseChange,
    SegmentsImported,
    ShadowWritten,
)
from rlmm.records.records import MetadataRecord


class MigrationWrites(ABC):
    """The writes; they raise the errors of the manager's other writes."""

    @abstractmethod
    async def _write(self, record: MetadataRecord, deadline_s: float) -> int:
        """Propose the record and wait for its outcome; returns its metadata offset."""

    async def change_migration_phase(
        self, record: MigrationPhaseChange, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Set the next phase of the move; its metadata offset is `Migration.since`."""
        return await self._write(record, deadline_s)

    async def import_segments(
        self, record: SegmentsImported, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record segments of Kafka's metadata topic, while its brokers wait (SWITCHING)."""
        return await self._write(record, deadline_s)

    async def acknowledge_migration(
        self, record: MigrationAcknowledged, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record that this node's broker writes nothing in the present phase."""
        return await self._write(record, deadline_s)

    async def report_shadow(
        self, record: ShadowWritten, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Record which of the waiting changes are in Kafka's metadata topic."""
        return await self._write(record, deadline_s)
