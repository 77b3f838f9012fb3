"""Recognises an intact log with the compiled scan; `LogCheck` finds the faults of any other."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.process.compiled import compiled
from rlm.data_plane.transaction_batches import tell
from rlm.data_plane.transaction_check import TransactionCheck
from rlm.format.manifest import CHUNK_BYTES, ChunkChecksums


class KnownLog(NamedTuple):
    """A log's size and indexes; None for an index that could not be read."""

    log_bytes: int
    offset_index: bytes | None
    time_index: bytes | None


def sound_log(
    segment: TieredSegment,
    source: str,
    sums: ChunkChecksums | None,
    pieces: Iterable[Buffer],
    known: KnownLog,
    transactions: TransactionCheck | None = None,
) -> TransactionCheck | None:
    """The transactions of a log whose chunks, batches, offsets, epochs, indexes and largest
    timestamp are right; None if they are not, or if this scan can't tell.

    `pieces` are its bytes in order; without the compiled module they are not read.
    """
    module = compiled("pipeline.jobs.log_scan")
    log_bytes, offset_index, time_index = known
    if module is None or offset_index is None or time_index is None:
        return None
    scan = module.LogScan(
        start_offset=segment.start_offset,
        first_offset=segment.first_offset,
        end_offset=segment.end_offset,
        log_bytes=log_bytes,
        crc=None if sums is None else sums.crc32c,
        chunk_bytes=CHUNK_BYTES if sums is None else sums.chunk_bytes,
        chunk_crcs=array("I", () if sums is None else sums.chunks),
        epochs=array("q", (n for e in segment.leader_epochs for n in (e.epoch, e.start_offset))),
        offset_index=offset_index,
        time_index=time_index,
    )
    if transactions is None:
        transactions = TransactionCheck(segment.start_offset)
    for piece in pieces:
        found = scan.take(piece)
        if found is None:
            return None
        try:
            for batch in found:
                tell(transactions, batch, source, 0)
        except CorruptData:
            return None
    if not scan.finish() or segment.max_timestamp_ms not in (-1, scan.max_timestamp):
        return None
    return transactions
