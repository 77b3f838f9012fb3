"""Segments whose deletion is finished: their ids are kept for 30 days of measured time."""

from __future__ import annotations

from kafka_formats.kafka_uuid import Uuid
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import MetadataLog
from rlmm.rows import keys
from rlmm.rows.rows import RowReader
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata


class KnownSegments:
    """Segments that the log knows or knew, as true as the last `barrier`."""

    def __init__(
        self, log: MetadataLog, manager: RemoteLogMetadataManager, rows: RowReader
    ) -> None:
        self._log = log
        self._manager = manager
        self._rows = rows

    async def barrier(self, *, deadline_s: float) -> None:
        """Return once everything completed before is applied here. RetryLater: no leader."""
        await self._manager.catch_up(deadline_s=deadline_s)

    def find_segment(self, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        """A segment's row by its id alone."""
        return self._manager.find_segment(segment_uuid)

    def is_deleted(self, segment_id: RemoteLogSegmentId) -> bool:
        """True if this segment of this very partition was deleted to the end.

        Another id without a row is foreign: never delete its objects.
        """
        buried = self._rows.get(keys.segment_tombstone_key(segment_id.id))
        return buried == keys.partition_bytes(segment_id.partition)
