"""The `.indexes` object: all indexes of a segment back to back, in the order of Aiven's writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_formats import leader_epoch_checkpoint, producer_snapshot, transaction_index
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.log_names import TRANSACTION_INDEX_SUFFIX
from rlm.copy_job import CopyJob, ProducerSnapshotOrigin
from rlm.manifest import CHUNK_BYTES, ChunkChecksums, IndexRange
from rlm.read_request import IndexType
from rlm.segment_source import SegmentSource
from rlm.segment_verification import VerifiedLog


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The object's bytes and where each index stands in them."""

    data: bytes
    ranges: Mapping[IndexType, IndexRange]
    producer_snapshot: ProducerSnapshotOrigin
    txn_index_empty: bool

    def checksums(self) -> ChunkChecksums:
        """Whole and per chunk."""
        view = memoryview(self.data)
        return ChunkChecksums(
            len(view),
            crc32c(view),
            tuple(crc32c(view[at : at + CHUNK_BYTES]) for at in range(0, len(view), CHUNK_BYTES)),
        )


def build_indexes(job: CopyJob, source: SegmentSource, verified: VerifiedLog) -> SegmentIndexes:
    """Gather the indexes of a verified log. Blocks: callers use a thread.

    CorruptData when the aborted transactions are not known for certain.
    """
    snapshot, origin = _producer_snapshot(job, source, verified)
    transactions = _transaction_index(job, source, verified)
    lineage = leader_epoch_checkpoint.truncate_from_end(
        leader_epoch_checkpoint.parse(job.lineage_checkpoint, source="lineage of the copy job"),
        job.next_base_offset,
    )
    parts = {
        IndexType.OFFSET: verified.indexes.offset_index(),
        IndexType.TIMESTAMP: verified.indexes.time_index(),
        IndexType.PRODUCER_SNAPSHOT: snapshot,
        IndexType.LEADER_EPOCH: leader_epoch_checkpoint.encode(lineage),
    }
    if transactions:
        parts[IndexType.TRANSACTION] = transactions
    ranges = {}
    position = 0
    for index, data in parts.items():
        ranges[index] = IndexRange(position, len(data))
        position += len(data)
    return SegmentIndexes(b"".join(parts.values()), ranges, origin, not transactions)


def _producer_snapshot(
    job: CopyJob, source: SegmentSource, verified: VerifiedLog
) -> tuple[bytes, ProducerSnapshotOrigin]:
    """The snapshot at the next base: the broker's, else made from this base's, else none."""
    path = source.snapshot_path(job.next_base_offset)
    try:
        data = source.read_beside(path)
        if data is not None:
            producer_snapshot.parse(data, source=str(path))
            return data, ProducerSnapshotOrigin.COPIED
    except CorruptData:
        pass  # made anew below; the broker itself does not read it before its next start
    if verified.producers_known:
        made = producer_snapshot.encode(verified.producers.producers)
        return made, ProducerSnapshotOrigin.REBUILT
    return b"", ProducerSnapshotOrigin.ABSENT


def _transaction_index(job: CopyJob, source: SegmentSource, verified: VerifiedLog) -> bytes:
    """The transaction index, held against the ABORT markers in the log; empty without aborts.

    A reader of committed records trusts it, so one that misses an abort must not be uploaded. The
    broker's index may hold more than the replay knows (a transaction begun before a lost snapshot),
    never less. It is made anew only if the replay accounts for every marker.
    """
    path = source.index_path(TRANSACTION_INDEX_SUFFIX)
    markers = verified.producers.abort_markers
    expected = verified.producers.aborted if verified.producers_known else ()
    wanted = {(entry.producer_id, entry.last_offset) for entry in expected}
    try:
        data = source.read_beside(path) or b""
        entries = transaction_index.parse(data, source=str(path))
        listed = {(entry.producer_id, entry.last_offset) for entry in entries}
        if wanted <= listed <= markers:
            return data
    except CorruptData:
        pass  # made anew below, or refused
    if not job.txn_index_empty and verified.producers_known and wanted == markers:
        return transaction_index.encode(expected)
    raise CorruptData(
        "the transaction index does not fit the ABORT markers in the .log: stop the broker, remove "
        "the segment's .index, .timeindex and .txnindex, and let the broker make them anew",
        source=str(path),
        position=0,
    )
