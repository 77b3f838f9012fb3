"""Plans the work of a restore by producing, of which earlier runs may have done a part.

The tier changes meanwhile: more is tiered, and retention removes the oldest. A run that continues
keeps the range that the first run noted in the target, as far as the tier still has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_formats.errors import Conflict
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import Catalogue
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.restore.kafka_target import Progress
from pipeline.restore.ranges import (
    AskedOffsets,
    Wanted,
    find_ranges,
    holes,
    nothing_to_restore,
    source_name,
)
from pipeline.restore.restore_note import Begun, parse_begun
from rlm.data_plane.read_request import Isolation

ISOLATION = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class WantedPartition:
    """The range of a partition to restore, and its `slices` in the tier, ascending. `lost` are
    skipped offsets (inclusive), requested but in no segment.
    """

    begun: Begun
    slices: tuple[SegmentSlice, ...]
    lost: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ProducePlan:
    """The partitions, ascending, and the settings with which tasks read. `missed`: partitions of
    which no requested offset is in a segment, and these offsets (inclusive).
    """

    partitions: Mapping[TopicIdPartition, WantedPartition]
    settings: ReadSettings
    missed: Mapping[TopicIdPartition, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class _GoingOn:
    begun: Begun
    next_offset: int
    readable_from: int


def plan_produce(
    catalogue: Catalogue,
    tier_options: Mapping[str, str],
    wanted: Wanted,
    columns: tuple[str, ...],
    noted: Mapping[int, Progress],
) -> ProducePlan:
    """The plan. `noted` is the progress found in the target, by partition. Conflict names offsets
    that a continued run would need but the tier no longer has; other errors as in `find_ranges`.
    """
    going: dict[TopicIdPartition, _GoingOn] = {}
    fresh: list[int] = []
    there = [
        each
        for each in catalogue.partitions(wanted.topic)
        if not wanted.partitions or each.partition in wanted.partitions
    ]
    catalogue.prepare(there)
    for each in there:
        found = _going_on(catalogue, wanted, each, noted.get(each.partition))
        if found is None:
            fresh.append(each.partition)
        else:
            going[each] = found
    ranges = find_ranges(catalogue, tier_options, wanted, ISOLATION, columns, only=fresh)
    asked = AskedOffsets(wanted)
    plan = {source: _fresh(source, parts, wanted, asked) for source, parts in ranges.slices.items()}
    plan |= _kept_ranges(catalogue, tier_options, wanted, columns, going, asked)
    if not plan:
        raise nothing_to_restore(wanted)
    missed = {each: asked.all_of(each) for each in sorted(there) if each not in plan}
    missed = {each: lost for each, lost in missed.items() if lost}
    return ProducePlan(dict(sorted(plan.items())), ranges.settings, missed)


def _fresh(
    source: TopicIdPartition,
    parts: tuple[SegmentSlice, ...],
    wanted: Wanted,
    asked: AskedOffsets,
) -> WantedPartition:
    first, end = parts[0].first_offset, parts[-1].last_offset + 1
    before, behind = asked.outside(source, first, end)
    begun = Begun(source_name(source, ISOLATION), first, end, wanted.asked)
    return WantedPartition(begun, parts, (*before, *holes(parts), *behind))


def _going_on(
    catalogue: Catalogue, wanted: Wanted, source: TopicIdPartition, progress: Progress | None
) -> _GoingOn | None:
    begun = None if progress is None else parse_begun(progress.what)
    ours = (source_name(source, ISOLATION), wanted.asked)
    if progress is None or begun is None or (begun.source, begun.asked) != ours:
        return None
    at, end = progress.next_offset, begun.end_offset
    readable_from = max(begun.first_offset, catalogue.bounds(source).earliest)
    lost_to = min(readable_from, end) - 1
    if at <= lost_to and not wanted.skip_lost:
        raise Conflict(
            f"the restore of {begun} has come to the offset {at}, but the tier no longer has the "
            f"offsets {at} to {lost_to}: give --skip-lost to continue after them, or restore the "
            "rest into a different topic (--topic-as NAME)",
            reason="DATA_LOSS",
        )
    return _GoingOn(begun, at, readable_from)


def _kept_ranges(
    catalogue: Catalogue,
    tier_options: Mapping[str, str],
    wanted: Wanted,
    columns: tuple[str, ...],
    going: Mapping[TopicIdPartition, _GoingOn],
    asked: AskedOffsets,
) -> dict[TopicIdPartition, WantedPartition]:
    readable = {
        source.partition: (each.readable_from, each.begun.end_offset)
        for source, each in going.items()
        if each.readable_from < each.begun.end_offset
    }
    slices: Mapping[TopicIdPartition, tuple[SegmentSlice, ...]] = {}
    if readable:
        kept = replace(
            wanted,
            partitions=tuple(readable),
            starting_offsets=_by_partition(
                wanted, {each: at for each, (at, _) in readable.items()}
            ),
            ending_offsets=_by_partition(
                wanted, {each: end for each, (_, end) in readable.items()}
            ),
            starting_timestamp=None,
            ending_timestamp=None,
        )
        slices = find_ranges(catalogue, tier_options, kept, ISOLATION, columns).slices
    plan = {}
    for source, each in going.items():
        parts = slices.get(source, ())
        passed_over = (each.next_offset, min(each.readable_from, each.begun.end_offset) - 1)
        lost = (passed_over,) if passed_over[0] <= passed_over[1] else ()
        before, behind = asked.outside(source, each.begun.first_offset, each.begun.end_offset)
        plan[source] = WantedPartition(each.begun, parts, (*before, *lost, *holes(parts), *behind))
    return plan


def _by_partition(wanted: Wanted, offsets: Mapping[int, int]) -> str:
    return json.dumps({wanted.topic: {str(each): offset for each, offset in offsets.items()}})
