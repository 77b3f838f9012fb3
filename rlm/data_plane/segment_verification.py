"""Checks every batch of a segment before its manifest may be written.

Each batch must have the right CRC and magic 2; offsets must ascend within [base, next base) without
a gap that `gap_rule` forbids; leader epochs must be those of the lineage; no bytes may follow the
last batch. The same pass computes the checksums, the largest timestamp, the checked indexes and the
producers' state for the upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kafka_formats import offset_index, producer_snapshot
from kafka_formats.batch_scan import BatchRun, BatchScanner
from kafka_formats.crc32c import crc32c, crc32c_combine
from kafka_formats.errors import CorruptData
from kafka_formats.log_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafka_formats.producer_snapshot import OpenTransaction, ProducerState
from kafka_formats.record_batch import LOG_OVERHEAD
from rlm.data_plane.copy_job import CopyJob
from rlm.data_plane.index_check import IndexCheck
from rlm.data_plane.producer_replay import ProducerReplay
from rlm.data_plane.segment_source import SegmentSource
from rlm.format.manifest import CHUNK_BYTES, ChunkChecksums
from rlm.local_log.gap_rule import GapWatch, shows_cleaner

PIECE_BYTES = 1024 * 1024
"""Bytes read and scanned at once; smaller pieces would split runs of small batches."""
OPEN_AT_BASE_MAX = 10_000
"""Limit of the open transactions in a manifest, one per active producer."""

_NEVER = 2**63  # above every offset


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """A `.log` that was read to its end and is right.

    `producers_known`: the replay began from a known state, so its snapshot is right. `open_at_base`
    are the transactions open in that state; None if it is not reliable or has too many. `cleaned`:
    Kafka's cleaner has rewritten some batches. `thinned`: it has, or there are gaps, which are
    legal after it.
    """

    checksums: ChunkChecksums
    chunk_offset_index: bytes
    indexes: IndexCheck
    producers: ProducerReplay
    producers_known: bool
    cleaned: bool
    thinned: bool
    open_at_base: tuple[OpenTransaction, ...] | None = ()


class VerifiedPart(NamedTuple):
    """The number of bytes that were filled, and their CRC32C."""

    size_bytes: int
    crc32c: int


class SegmentVerification:
    """Reads and checks the `.log` part by part. It blocks: callers use a thread, one call at a
    time.
    """

    def __init__(self, job: CopyJob, source: SegmentSource) -> None:
        self._job = job
        self._source = source
        self._name = str(source.log_path)
        self._scanner = BatchScanner(
            self._name,
            batch_bytes_max=job.limits.batch_bytes_max,
            size_bytes=source.size_bytes,
            limit="copier.batch_bytes_max",
        )
        self._epochs = job.leader_epochs
        self._enter_epoch(0)
        self._next_offset = job.start_offset
        self._gaps = GapWatch(job.log_start_offset, job.gaps_allowed, job.once_there)
        self._position = 0
        self._finished = False
        self._crc = 0
        self._chunks: list[int] = []
        self._chunk_crc, self._chunk_bytes = 0, 0
        self._chunk_batches: list[tuple[int, int]] = []  # (base offset, position), see the manifest
        self._next_chunk_at = CHUNK_BYTES
        base = _producers_at_base(job, source)
        self._producers = ProducerReplay(base, job.start_offset)
        self._producers_known = base is not None
        check = self._producers.transactions
        self._open_at_base = _named(check.open) if check.base_known else job.open_at_base
        whole = job.source is None  # else the broker's indexes have different positions
        self._indexes = IndexCheck(
            job.start_offset,
            lambda: source.read_beside(source.index_path(INDEX_SUFFIX)) if whole else None,
            lambda: source.read_beside(source.index_path(TIME_INDEX_SUFFIX)) if whole else None,
        )

    def read_part(self, buffer: bytearray) -> VerifiedPart | None:
        """Fill `buffer` with the next bytes, verified; None after the end.

        The last part is returned only after the whole log was found right. Raises CorruptData for
        damage, or Conflict(SOURCE_CHANGED) if the log changed; that is checked first, since a file
        that is being changed looks damaged.
        """
        if self._finished:
            return None
        try:
            with memoryview(buffer) as view:
                part = self._fill(view)
            if self._position == self._source.size_bytes:
                self._finish()
        except CorruptData:
            self._source.check_unchanged()
            raise
        return part if part.size_bytes else None

    def result(self) -> VerifiedLog:
        """The result. Call this after the last part was read."""
        assert self._finished, "the log was not read to its end"
        return VerifiedLog(
            ChunkChecksums(self._position, self._crc, tuple(self._chunks)),
            offset_index.encode(self._chunk_batches, self._job.start_offset),
            self._indexes,
            self._producers,
            self._producers_known,
            self._gaps.cleaned,
            self._gaps.thinned,
            self._open_at_base,
        )

    def _fill(self, view: memoryview) -> VerifiedPart:
        """Fill `view` piece by piece, so that a piece is still in the processor's cache when it is
        scanned.
        """
        filled = part_crc = 0
        while filled < len(view) and self._position < self._source.size_bytes:
            size = min(
                PIECE_BYTES - self._position % PIECE_BYTES,
                self._source.size_bytes - self._position,
                len(view) - filled,
            )
            piece = view[filled : filled + size]
            self._source.read_log_into(self._position, piece)
            part_crc = crc32c_combine(part_crc, self._take_sums(piece), size)
            for run in self._scanner.feed_runs(piece):
                self._check(run)
            filled += size
        return VerifiedPart(filled, part_crc)

    def _take_sums(self, piece: memoryview) -> int:
        """The CRC32C of the next bytes; also continues those of the chunk and of the file."""
        piece_crc = at = 0
        while at < len(piece):
            size = min(CHUNK_BYTES - self._chunk_bytes, len(piece) - at)
            crc = crc32c(piece[at : at + size])
            piece_crc = crc32c_combine(piece_crc, crc, size)
            self._take_sum(crc, size)
            at += size
        return piece_crc

    def _take_sum(self, crc: int, size: int) -> None:
        self._position += size
        self._crc = crc32c_combine(self._crc, crc, size)
        self._chunk_crc = crc32c_combine(self._chunk_crc, crc, size)
        self._chunk_bytes += size
        if self._chunk_bytes == CHUNK_BYTES or self._position == self._source.size_bytes:
            self._chunks.append(self._chunk_crc)
            self._chunk_crc, self._chunk_bytes = 0, 0

    def _finish(self) -> None:
        self._scanner.finish()
        if self._scanner.position != self._position:
            raise CorruptData(
                "zeros follow the last batch of a sealed segment",
                source=self._name,
                position=self._scanner.position,
            )
        if self._next_offset <= self._job.end_offset:
            self._gaps.gap(self._next_offset, self._job.end_offset, self._position)
        self._gaps.check(self._name)
        self._source.check_unchanged()
        self._finished = True

    def _check(self, run: BatchRun) -> None:
        next_offset, position, end_offset = self._next_offset, run.position, self._job.end_offset
        cleaned = self._gaps.cleaned
        for (
            base_offset,
            length,
            epoch,
            _,
            _,
            attributes,
            delta,
            _,
            _,
            _,
            _,
            _,
            count,
        ) in run.headers:
            last_offset = base_offset + delta
            if base_offset < next_offset or last_offset > end_offset:
                raise CorruptData(
                    f"the batch has the offsets {base_offset} to {last_offset}, but only "
                    f"{next_offset} to {end_offset} are legal here",
                    source=self._name,
                    position=position,
                )
            if base_offset != next_offset:
                self._gaps.gap(next_offset, base_offset - 1, position)
            if not cleaned and shows_cleaner(attributes, delta, count):
                cleaned = True
                self._gaps.cleaner_seen()
            if epoch != self._epoch or last_offset >= self._epoch_end:
                self._check_epoch(base_offset, last_offset, epoch, position)
            if position >= self._next_chunk_at:
                self._chunk_batches.append((base_offset, position))
                self._next_chunk_at = (position // CHUNK_BYTES + 1) * CHUNK_BYTES
            next_offset = last_offset + 1
            position += LOG_OVERHEAD + length
        self._next_offset = next_offset
        self._indexes.take(run.headers, run.position)
        self._producers.take(run, self._name)

    def _enter_epoch(self, number: int) -> None:
        """Set `_epoch` to the lineage's epoch number `number`, which ends before `_epoch_end`."""
        epochs = self._epochs
        self._epoch_at, self._epoch = number, epochs[number].epoch
        after = number + 1
        self._epoch_end = epochs[after].start_offset if after < len(epochs) else _NEVER

    def _check_epoch(self, base_offset: int, last_offset: int, epoch: int, position: int) -> None:
        """Raise CorruptData unless the batch has the leader epoch of the lineage for its offsets.
        Below the log start offset the lineage may lack its head, so older epochs are allowed there.
        """
        while self._epoch_end <= base_offset:
            self._enter_epoch(self._epoch_at + 1)
        expected = self._epoch
        if epoch == expected and last_offset < self._epoch_end:
            return
        if epoch < expected and last_offset < self._job.log_start_offset:
            return
        raise CorruptData(
            f"the batch at offset {base_offset} has leader epoch {epoch}, but the lineage "
            f"has {expected}",
            source=self._name,
            position=position,
        )


def _named(opened: frozenset[OpenTransaction]) -> tuple[OpenTransaction, ...] | None:
    if len(opened) > OPEN_AT_BASE_MAX:
        return None
    return tuple(sorted(opened, key=lambda each: each.first_offset))


def _producers_at_base(job: CopyJob, source: SegmentSource) -> tuple[ProducerState, ...] | None:
    """The producers' state at the segment's base; None if unknown."""
    if job.start_offset == 0:
        return ()
    path = source.snapshot_path(job.start_offset)
    try:
        data = source.read_beside(path)
        if data is None and job.source is not None:
            data = job.source.producers_at_base
        found = None if data is None else producer_snapshot.parse(data, source=str(path))
    except CorruptData:
        return None
    if found is not None and any(
        each.current_txn_first_offset >= job.start_offset for each in found
    ):
        return None  # the snapshot is of a later offset
    return found
