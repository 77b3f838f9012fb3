"""Finds the first tiered record at or after a time: Kafka's offsetsForTimes over segments."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kafka_formats.errors import NotFound
from kafka_formats.time_index import TimeIndex
from pipeline.decode.schema import TIMESTAMP
from pipeline.read.open_stores import OpenStores
from pipeline.read.records import read_opened
from pipeline.read.segment_objects import SegmentObjects
from pipeline.read.segment_slice import ReadSettings, SegmentSlice, cut
from rlm.data_plane.read_request import Isolation
from rlm.format.manifest import IndexType

COLUMNS = ("offset", "timestamp")
_TIMESTAMP_MAX_MS = (2**63 - 1) // 1_000


def first_at_or_after(
    slices: Iterable[SegmentSlice],
    timestamp_ms: int,
    stores: OpenStores,
    settings: ReadSettings,
) -> int | None:
    """The record's offset; None if all are older. `slices` are of one partition, ascending.

    Segments are skipped by their largest timestamp, as in Kafka, so that usually one is read. Times
    need not ascend: the first such offset counts, not the earliest time. As in Kafka, records of
    aborted transactions count too; a read from that offset leaves them out.
    """
    if timestamp_ms > _TIMESTAMP_MAX_MS:
        return None
    looking = replace(settings, columns=COLUMNS, isolation=Isolation.READ_UNCOMMITTED)
    wanted = pa.scalar(timestamp_ms * 1_000, TIMESTAMP)
    for whole in slices:
        if 0 <= whole.segment.max_timestamp_ms < timestamp_ms:
            continue
        part = cut(whole, _floor(whole, timestamp_ms, stores, looking), whole.last_offset)
        with closing(read_opened([part], stores, looking)) as batches:
            for batch in batches:
                times = batch.column("timestamp")
                at = pc.index(pc.greater_equal(times, wanted), value=True).as_py()
                if at >= 0:
                    return int(batch.column("offset")[at].as_py())
    return None


def _floor(
    part: SegmentSlice, timestamp_ms: int, stores: OpenStores, settings: ReadSettings
) -> int:
    """An offset below which every record of the segment is older, by its time index."""
    objects = SegmentObjects(part.segment, stores, verify=settings.verify)
    try:
        with objects.naming():
            data = objects.index(IndexType.TIMESTAMP)
    except NotFound as error:
        if settings.fail_on_data_loss:
            raise objects.wrapped(error) from error
        return part.last_offset + 1
    if data is None:
        return part.first_offset
    with objects.naming():
        index = TimeIndex.parse(
            data, base_offset=part.segment.start_offset, source=objects.keys.indexes
        )
    # An entry means "no record up to this offset is newer": the last one of an earlier time is safe
    return index.lookup(timestamp_ms - 1)[1]
