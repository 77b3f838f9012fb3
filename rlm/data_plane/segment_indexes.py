"""Builds the `.indexes` object: all indexes of a segment, concatenated in the order of Aiven's
writer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_formats import leader_epoch_checkpoint, producer_snapshot, transaction_index
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.log_names import TRANSACTION_INDEX_SUFFIX
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.segment_source import SegmentSource
from rlm.data_plane.segment_verification import VerifiedLog
from rlm.format.manifest import (
    CHUNK_BYTES,
    ChunkChecksums,
    IndexRange,
    IndexType,
    ProducerSnapshotOrigin,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentIndexes:
    """The object's bytes, and the range of each index in them."""

    data: bytes
    ranges: Mapping[IndexType, IndexRange]
    producer_snapshot: ProducerSnapshotOrigin
    txn_index_empty: bool

    def checksums(self) -> ChunkChecksums:
        view = memoryview(self.data)
        return ChunkChecksums(
            len(view),
            crc32c(view),
            tuple(crc32c(view[at : at + CHUNK_BYTES]) for at in range(0, len(view), CHUNK_BYTES)),
        )


def build_indexes(job: CopyJob, source: SegmentSource, verified: VerifiedLog) -> SegmentIndexes:
    """Build the indexes of a verified log. It blocks: callers use a thread. Raises CorruptData if
    the aborted transactions are not known for certain.
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
    # A rebuilt index without entries is written too, since the metadata says that there is one.
    if transactions or not job.txn_index_empty:
        parts[IndexType.TRANSACTION] = transactions
    ranges = {}
    position = 0
    for index, data in parts.items():
        ranges[index] = IndexRange(position, len(data))
        position += len(data)
    present = IndexType.TRANSACTION in parts
    return SegmentIndexes(b"".join(parts.values()), ranges, origin, txn_index_empty=not present)


def _producer_snapshot(
    job: CopyJob, source: SegmentSource, verified: VerifiedLog
) -> tuple[bytes, ProducerSnapshotOrigin]:
    """The producer snapshot at the next base: the broker's if it shows exactly the transactions
    that are open, on which readers rely; else one rebuilt from that at this base; else none.
    """
    path = source.snapshot_path(job.next_base_offset)
    try:
        data = source.read_beside(path)
        if data is not None:
            told = producer_snapshot.parse_open(data, source=str(path))
            if verified.producers.transactions.open_differs(told) is None:
                return data, ProducerSnapshotOrigin.COPIED
    except CorruptData:
        pass  # rebuilt below; the broker will notice it only at its next start
    if verified.producers_known:
        made = producer_snapshot.encode(verified.producers.producers)
        return made, ProducerSnapshotOrigin.REBUILT
    return b"", ProducerSnapshotOrigin.ABSENT


def _transaction_index(job: CopyJob, source: SegmentSource, verified: VerifiedLog) -> bytes:
    """The transaction index, with each entry checked against the log; empty without aborts.

    Readers of committed records rely on it. So a wrong one is rebuilt if the producers' state at
    the base is known; otherwise CorruptData is raised. `rlm/data_plane/transaction_check.py` has
    the rules.
    """
    path = source.index_path(TRANSACTION_INDEX_SUFFIX)
    check = verified.producers.transactions
    try:
        data = source.read_beside(path) or b""
        entries = transaction_index.parse(data, source=str(path))
        if job.source is not None:  # the index file covers the whole damaged segment
            inside = range(job.start_offset, job.next_base_offset)
            entries = tuple(entry for entry in entries if entry.last_offset in inside)
        wrong = next(check.differences(entries, cleaned=verified.thinned), None)
        if wrong is None:
            if unverified := check.unverified(entries):
                _log.warning(
                    "%s: %d aborted transactions may begin below the segment; there is no producer "
                    "snapshot at its base to check this, so their entries are copied unverified",
                    path,
                    unverified,
                )
            return transaction_index.encode(entries)
    except CorruptData as error:
        wrong = error.detail
    made = check.made()
    if made is not None and not (made and job.txn_index_empty):
        _log.warning("%s is wrong, and is rebuilt from the .log: %s", path, wrong)
        return transaction_index.encode(made)
    to_do = (
        "stop the broker, remove the segment's .index, .timeindex and .txnindex, and start the "
        "broker, which rebuilds them"
        if job.source is None
        else f"neither this replica nor the tier has a producer snapshot at {job.start_offset}, so "
        "the first offsets of this part's aborted transactions are not known; `strandline "
        "partitions skip` gives the part up"
    )
    raise CorruptData(
        f"the transaction index does not fit the ABORT markers in the .log ({wrong}): {to_do}",
        source=str(path),
        position=0,
    )
