"""Which stores the segments are in, by the metadata alone: whether one can be taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from kafka_formats.errors import CorruptData
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.custom_metadata import CustomMetadata
from rlmm.segment import RemoteLogSegmentMetadata

ROWS_PER_BREATH = 64
NOT_OURS = "(written by another RemoteStorageManager)"


class RowsPort(Protocol):
    """The part used here of `rlmm.manager.manager.RemoteLogMetadataManager`."""

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Every partition that has a row."""
        ...

    def list_remote_log_segments(
        self, tip: TopicIdPartition, /
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """All rows of a partition."""
        ...


@dataclass(slots=True)
class StoreUsage:
    """Segments whose row names the store, finished or being deleted, and their `.log` bytes."""

    segments: int = 0
    size_bytes: int = 0


async def store_usage(
    rows: RowsPort, breathe: Callable[[], Awaitable[None]]
) -> dict[str, StoreUsage]:
    """By store name. Copies under way are not in it: they name a store when they are finished."""
    found: dict[str, StoreUsage] = {}
    seen = 0
    for tip in list(rows.partitions()):
        for row in rows.list_remote_log_segments(tip):
            seen += 1
            if seen % ROWS_PER_BREATH == 0:
                await breathe()
            if row.custom_metadata is None:
                continue
            usage = found.setdefault(_store_of(row.custom_metadata), StoreUsage())
            usage.segments += 1
            usage.size_bytes += row.size_bytes
    return found


def _store_of(custom_metadata: bytes) -> str:
    try:
        return CustomMetadata.decode(custom_metadata).store
    except CorruptData:
        return NOT_OURS
