"""Segments per store, by the metadata alone: shows whether a store can be taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rlm.format.custom_metadata import custom_of
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.segment import SegmentState

ROWS_PER_BREATH = 64
NOT_OURS = "(written by another RemoteStorageManager)"


@dataclass(slots=True)
class StoreUsage:
    """Segments whose row names the store, finished or being deleted, and their `.log` bytes."""

    segments: int = 0
    size_bytes: int = 0


async def store_usage(
    rows: MetadataReads, breathe: Callable[[], Awaitable[None]]
) -> dict[str, StoreUsage]:
    """Usage by store name, without copies under way: a row names its store once finished."""
    found: dict[str, StoreUsage] = {}
    seen = 0
    for tip in list(rows.partitions()):
        for row in rows.list_remote_log_segments(tip):
            seen += 1
            if seen % ROWS_PER_BREATH == 0:
                await breathe()
            # Without custom metadata: a copy that did not finish, or one by Aiven's plug-in.
            is_finished = row.state is SegmentState.COPY_SEGMENT_FINISHED
            if row.custom_metadata is None and not is_finished:
                continue
            custom = custom_of(row.custom_metadata)
            name = NOT_OURS if custom is None else custom.store
            usage = found.setdefault(name, StoreUsage())
            usage.segments += 1
            usage.size_bytes += row.size_bytes
    return found
