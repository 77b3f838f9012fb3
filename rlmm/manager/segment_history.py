"""The history of one segment, read back from the metadata log as far as it is retained."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound
from rlmm.metadata_log import CommittedRecord, MetadataLog
from rlmm.records.records import MetadataRecord, decode
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
)

HISTORY_ENTRIES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A record about the segment as proposed, accepted or not; `epoch` is the quorum's."""

    offset: int
    epoch: int
    timestamp_ms: int
    record: MetadataRecord


async def read_history(
    log: MetadataLog, segment_id: RemoteLogSegmentId, *, limit: int, read_records: int
) -> tuple[HistoryEntry, ...]:
    """The oldest `limit` retained records that name the segment, in the order of the log."""
    if not 0 < limit <= HISTORY_ENTRIES_MAX:
        raise InvalidRequest(f"{limit} is not between 1 and {HISTORY_ENTRIES_MAX}", field="limit")
    found: list[HistoryEntry] = []
    position = log.describe().log_start_offset
    while len(found) < limit:
        try:
            records = await log.read(position, limit=read_records)
        except NotFound:
            # The log was cut meanwhile: go on where it starts now.
            position = log.describe().log_start_offset
            continue
        if not records:
            break
        position = records[-1].offset + 1
        found.extend(entry for record in records if (entry := _entry(record, segment_id)))
    return tuple(found[:limit])


def _entry(record: CommittedRecord, segment_id: RemoteLogSegmentId) -> HistoryEntry | None:
    # Every record about the segment contains the bytes of its id: most records need no decoding.
    if record.control_type is not None or record.value.find(segment_id.id) < 0:
        return None
    try:
        decoded = decode(None, record.value)
    except CorruptData:
        return None
    if (
        not isinstance(decoded, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
        or decoded.segment_id != segment_id
    ):
        return None
    return HistoryEntry(record.offset, record.epoch, record.timestamp_ms, decoded)
