"""Reads the records of segments as Arrow, in the tasks of data source, export and restore."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.offset_index import OffsetIndex
from pipeline.decode.batch_decoder import (
    RECORDS_BYTES_MAX,
    BatchDecoder,
    DecodeLimits,
    Transactions,
)
from pipeline.decode.rows import Slice
from pipeline.read.open_stores import OpenStores
from pipeline.read.positions import ByteRange, byte_range
from pipeline.read.segment_objects import SegmentObjects
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.read.transactions import TransactionIndexes
from rlm.data_plane.read_request import Isolation
from rlm.data_plane.transaction_walk import TransactionWalk
from rlm.format.manifest import IndexType
from rsm_backends.store_config import StoreConfig

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("strandline.read")
_BASE_OFFSET = struct.Struct(">q")


def read_slices(
    slices: Iterable[SegmentSlice],
    stores: Mapping[str, StoreConfig],
    settings: ReadSettings,
    *,
    on_lost: Callable[[SegmentSlice, int], None] | None = None,
    on_undecided: Callable[[int], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of `slices`, in their order, in batches of about 2 MB with `settings.columns`.

    Runs in a task: blocks, and opens its own stores, which it closes at its end. CorruptData names
    object and position, and, like NotFound, the segment, its topic and offsets. NotFound if the
    segment was deleted after the plan, unless `settings.fail_on_data_loss` is off: then
    `on_lost(slice, offset)` is called, after all records of the slice below `offset` were returned,
    and the next slice follows; records whose transactions ended in a different segment deleted
    since are undecided. RetryLater, Refused: the store. Conflict (TRANSACTIONS_UNKNOWN): for
    read_committed the tier does not show which transactions were aborted. `on_undecided(n)`: n
    records of a slice were left out because the markers of their transactions are among lost
    offsets; this is logged, too.
    """
    with OpenStores(stores, settings.aiven_keys) as opened:
        yield from read_opened(slices, opened, settings, on_lost=on_lost, on_undecided=on_undecided)


def read_opened(
    slices: Iterable[SegmentSlice],
    stores: OpenStores,
    settings: ReadSettings,
    *,
    on_lost: Callable[[SegmentSlice, int], None] | None = None,
    on_undecided: Callable[[int], None] | None = None,
) -> Generator[pa.RecordBatch]:
    """`read_slices` with stores that the caller opens and closes; close the iterator first."""
    transactions = TransactionIndexes(stores, verify=settings.verify)
    for part in slices:
        if part.first_offset > part.last_offset:
            continue
        objects = SegmentObjects(part.segment, stores, verify=settings.verify)
        given_below = part.first_offset
        try:
            walk = TransactionWalk(part.first_offset, part.last_offset)
            if settings.isolation is Isolation.READ_COMMITTED:
                walk = transactions.walked(part, lost_ok=not settings.fail_on_data_loss)
            with objects.naming():
                for batch in _batches(part, objects, settings, walk, on_undecided):
                    yield batch
                    given_below = _behind(batch, given_below)
        except NotFound as error:
            if settings.fail_on_data_loss:
                raise objects.wrapped(error) from error
            if on_lost is not None:
                on_lost(part, given_below)


def _batches(
    part: SegmentSlice,
    objects: SegmentObjects,
    settings: ReadSettings,
    walk: TransactionWalk,
    on_undecided: Callable[[int], None] | None,
) -> Iterator[pa.RecordBatch]:
    where = _where(part, objects)
    segment, partition = part.segment, part.segment.partition
    unproven = None if objects.log_is_proven else (segment.start_offset, segment.end_offset)
    decoder = BatchDecoder(
        settings.columns,
        Slice(
            partition.topic,
            partition.partition,
            objects.keys.log,
            part.first_offset,
            part.last_offset,
            unproven,
        ),
        transactions=Transactions(
            walk.aborted, walk.undecided, settings.isolation is Isolation.READ_COMMITTED
        ),
        position=where.start,
        size_bytes=objects.manifest.log_bytes,
        limits=DecodeLimits(records_bytes_max=settings.batch_bytes_max or RECORDS_BYTES_MAX),
    )
    at = where.start
    with closing(objects.log(where.start, where.end)) as pieces:
        for piece in pieces:
            if at == where.start:
                _check_jump(piece, at, part, objects.keys.log)
            at += len(piece)
            yield from decoder.feed(piece)
            if decoder.done and unproven is None:
                break
    if where.end < objects.manifest.log_bytes and not decoder.done:
        raise CorruptData(
            f"an index puts this position after offset {part.last_offset}, but the batches before "
            "it end earlier",
            source=objects.keys.log,
            position=where.end,
        )
    yield from decoder.finish()
    if count := decoder.undecided_records:
        log.warning(
            "%d records of %s-%d at the offsets %d to %d were left out: the markers of their "
            "transactions are among lost offsets, so it is unknown if they are committed; "
            "isolation read_uncommitted returns them",
            count,
            partition.topic,
            partition.partition,
            part.first_offset,
            part.last_offset,
        )
        if on_undecided is not None:
            on_undecided(count)


def _where(part: SegmentSlice, objects: SegmentObjects) -> ByteRange:
    """The bytes of the log to read; a whole segment needs no index."""
    segment, log_bytes = part.segment, objects.manifest.log_bytes
    if part.first_offset <= segment.start_offset and part.last_offset >= segment.end_offset:
        return ByteRange(0, log_bytes)
    sums = objects.manifest.checksums
    data = None if sums is None else sums.chunk_offset_index
    if data is None:
        data = objects.index(IndexType.OFFSET) or b""
    index = OffsetIndex.parse(data, base_offset=segment.start_offset, source=objects.keys.indexes)
    return byte_range(index, part.first_offset, part.last_offset, log_bytes)


def _check_jump(piece: memoryview, position: int, part: SegmentSlice, source: str) -> None:
    """Raise CorruptData unless, after a jump into the log, the first batch begins at or below the
    slice's first offset.

    Otherwise the index is wrong, and skipped records would be missing.
    """
    if position == 0 or len(piece) < _BASE_OFFSET.size:
        return
    base_offset = _BASE_OFFSET.unpack_from(piece)[0]
    if base_offset > part.first_offset:
        raise CorruptData(
            f"an index names this position for offset {part.first_offset}, but the batch here "
            f"begins at {base_offset}",
            source=source,
            position=position,
        )


def _behind(batch: pa.RecordBatch, before: int) -> int:
    """The offset after the batch's last record, or `before` without that column."""
    at = batch.schema.get_field_index("offset")
    if at < 0 or not batch.num_rows:
        return before
    return int(batch.column(at)[batch.num_rows - 1].as_py()) + 1
