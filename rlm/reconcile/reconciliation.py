"""Compares a full listing of the stores with the metadata: missing, damaged, unknown segments.

The stores are listed first, then the rows are read: objects that seem missing are confirmed by a
request for each, and an object without a row existed before the rows were read. Memory is bounded
by one partition.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.custom_metadata import CustomMetadata, custom_of
from rlm.format.object_keys import ObjectSuffix, parse_segment_key, segment_keys
from rlm.reconcile.adoption_plan import StoredSegment, add_listed, expected_sizes, why_missing
from rlm.stores.tier_store import TierStore, TierStores, listed_pages
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

UNKNOWN_SHOWN_MAX = 1_000
ROWS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class MissingSegment:
    """A finished segment whose objects differ from its row."""

    row: RemoteLogSegmentMetadata
    why: str


@dataclass(slots=True)
class Comparison:
    """The result. `damaged` segments have their `.log`, from which a repair can restore the rest;
    to record them as missing would lose their records. `unknown`: the first of `unknown_count`
    segments without a row. `uncompared`: the number of finished rows of a different
    RemoteStorageManager. `unlisted`: the number of finished rows in each store that is not in the
    settings, and so was not compared. `other_objects` belong to no segment.
    """

    whole: int = 0
    missing: list[MissingSegment] = field(default_factory=list)
    damaged: list[MissingSegment] = field(default_factory=list)
    unknown: list[StoredSegment] = field(default_factory=list)
    unknown_count: int = 0
    uncompared: int = 0
    unlisted: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0
    other_objects: int = 0


Sizes = Mapping[RemoteLogSegmentId, StoredSegment]
Breathe = Callable[[], Awaitable[None]]


async def compare(rows: MetadataReads, stores: TierStores, *, breathe: Breathe) -> Comparison:
    """List all stores to the end and compare them with the rows. `breathe` is awaited between
    slices of work.
    """
    result = Comparison()
    for tier in stores.by_name.values():
        seen: set[TopicIdPartition] = set()
        async for partition, segments in _by_partition(tier, result):
            seen.add(partition)
            await _compare_partition(rows, tier, partition, segments, result, breathe)
            _note_unknown(rows, segments.values(), result)
        for partition in rows.partitions():
            if partition not in seen:
                await _compare_partition(rows, tier, partition, {}, result, breathe)
    for partition in rows.partitions():
        await _note_uncompared(rows, stores, partition, result, breathe)
    for found in (result.missing, result.damaged):
        found.sort(key=lambda each: (each.row.segment_id.partition, each.row.start_offset))
    return result


async def _by_partition(
    tier: TierStore, result: Comparison
) -> AsyncIterator[tuple[TopicIdPartition, dict[RemoteLogSegmentId, StoredSegment]]]:
    """The listed segments, partition by partition, since keys sort by partition first."""
    current: TopicIdPartition | None = None
    found: dict[RemoteLogSegmentId, StoredSegment] = {}
    async for page in listed_pages(tier):
        for info in page:
            key = parse_segment_key(tier.prefix, info.key)
            if key is None:
                result.other_objects += 1
                continue
            partition = key.segment_id.partition
            if partition != current:
                if current is not None:
                    yield current, found
                current, found = partition, {}
            add_listed(found, key, info.size, tier.name)
    if current is not None:
        yield current, found


async def _compare_partition(
    rows: MetadataReads,
    tier: TierStore,
    partition: TopicIdPartition,
    segments: Sizes,
    result: Comparison,
    breathe: Breathe,
) -> None:
    async for row in _rows(rows, partition, breathe):
        custom = _custom_of(row)
        if custom is None or custom.store != tier.name:
            continue
        expected = expected_sizes(custom)
        stored = segments.get(row.segment_id)
        sizes: Mapping[ObjectSuffix, int] = {} if stored is None else stored.sizes
        if why_missing(expected, sizes):
            sizes = await _asked(tier, row)
        if not (why := why_missing(expected, sizes)):
            result.whole += 1
            continue
        has_log = sizes.get(ObjectSuffix.LOG) == expected[ObjectSuffix.LOG]
        (result.damaged if has_log else result.missing).append(MissingSegment(row, why))


async def _asked(tier: TierStore, row: RemoteLogSegmentMetadata) -> dict[ObjectSuffix, int]:
    """The sizes by a request for each object, since the listing may be older than the row."""
    keys = segment_keys(tier.prefix, row.segment_id, row.start_offset)
    found = {}
    for suffix in ObjectSuffix:
        try:
            found[suffix] = (await tier.store.head(keys.stem + suffix)).size
        except NotFound:
            continue
    return found


def _note_unknown(
    rows: MetadataReads, segments: Iterable[StoredSegment], result: Comparison
) -> None:
    for stored in segments:
        row = rows.find_segment(stored.segment_id.id)
        if row is None:
            result.unknown_count += 1
            if len(result.unknown) < UNKNOWN_SHOWN_MAX:
                result.unknown.append(stored)
        elif row.state is not SegmentState.COPY_SEGMENT_FINISHED:
            result.unfinished += 1


async def _note_uncompared(
    rows: MetadataReads,
    stores: TierStores,
    partition: TopicIdPartition,
    result: Comparison,
    breathe: Breathe,
) -> None:
    async for row in _rows(rows, partition, breathe):
        if row.state is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        custom = custom_of(row.custom_metadata)
        if custom is None:
            result.uncompared += 1
        elif custom.store not in stores.by_name:
            result.unlisted[custom.store] = result.unlisted.get(custom.store, 0) + 1


async def _rows(
    rows: MetadataReads, partition: TopicIdPartition, breathe: Breathe
) -> AsyncIterator[RemoteLogSegmentMetadata]:
    listed = rows.list_remote_log_segments(partition)
    while part := list(islice(listed, ROWS_AT_ONCE)):
        for row in part:
            yield row
        await breathe()


def _custom_of(row: RemoteLogSegmentMetadata) -> CustomMetadata | None:
    """The custom metadata of a finished row that Strandline wrote, else None."""
    finished = row.state is SegmentState.COPY_SEGMENT_FINISHED
    return custom_of(row.custom_metadata) if finished else None
