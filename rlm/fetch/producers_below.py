"""The producers' state at an offset, from the tier: the snapshot of the segment that ends there.

A part of a segment that is copied by itself, or was fetched from other replicas, has no broker's
snapshot at its base. Without one it is unknown where its aborted transactions begin.
"""

from __future__ import annotations

from kafka_formats import producer_snapshot
from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.format.manifest import IndexType


async def producers_below(
    reads: ResolvedReads, partition: TopicIdPartition, offset: int
) -> bytes | None:
    """A producer snapshot at `offset`; None if the tier has none. RetryLater: it can't be read now.

    Where the tier serves no offset right below, at its log start and after a lost range, the
    snapshot is empty: readers assume no open transaction there without proof (`TransactionWalk`).
    """
    served = reads.served_from(partition, offset - 1)
    if served is None or served[0].first_offset >= offset:
        return producer_snapshot.encode(())
    row = served[1]
    if row.end_offset != offset - 1:
        return None
    data = b""
    try:
        async for piece in reads.open_index(row.segment_id.id, IndexType.PRODUCER_SNAPSHOT):
            data += piece
    except (NotFound, CorruptData):
        return None  # the segment has none, or it is damaged, which the read has noted
    return data
