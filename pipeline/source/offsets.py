"""Resolves the options to offsets of each partition. Pure.

Kafka's rules: a named or specific offset must be readable, or data was lost; a time means the first
record at or after it, which the caller finds; specific offsets or times must name every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest, NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from pipeline.source.offset_limits import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    ByPartition,
    NamedOffset,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
)

NAMES_SHOWN_MAX = 20

Bounds = Mapping[TopicIdPartition, PartitionBounds]
Found = Mapping[TopicIdPartition, int | None]
"""The first offset at or after a partition's time; None if every record is older."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets to read of a partition: `start` inclusive, `end` exclusive."""

    partition: TopicIdPartition
    start: int
    end: int

    @property
    def count(self) -> int:
        """Number of offsets; compaction and transaction markers may leave fewer records."""
        return max(self.end - self.start, 0)


def check_complete(
    limit: OffsetLimit,
    partitions: Collection[TopicIdPartition],
    *,
    option: str,
    quiet: Callable[[str, int], bool] = lambda *_: False,
) -> None:
    """Raise InvalidRequest unless specific offsets or times name every partition of the query, no
    other. `quiet`: true for a partition without tiered segments that may be named: it is read as
    empty.
    """
    if isinstance(limit, SpecificOffsets):
        values = limit.offsets
    elif isinstance(limit, SpecificTimestamps):
        values = limit.timestamps_ms
    else:
        return
    there = {(partition.topic, partition.partition) for partition in partitions}
    if values.keys() != there:
        missing = sorted(there - values.keys())
        strange = sorted(each for each in values.keys() - there if not quiet(*each))
        if not missing and not strange:
            return
        raise InvalidRequest(
            "must name every partition of the query and no other"
            + (f"; missing: {_list(missing)}" if missing else "")
            + (f"; not tiered or not subscribed: {_list(strange)}" if strange else ""),
            field=option,
        )


def times_ms(
    limit: OffsetLimit, partitions: Collection[TopicIdPartition]
) -> dict[TopicIdPartition, int]:
    """The times to look up first; empty for a limit in offsets. Call `check_complete` before."""
    if isinstance(limit, AtTimestamp):
        return dict.fromkeys(partitions, limit.timestamp_ms)
    if isinstance(limit, SpecificTimestamps):
        return _pick(limit.timestamps_ms, partitions)
    return {}


def resolve(
    limit: OffsetLimit,
    bounds: Bounds,
    found: Found,
    *,
    option: str,
    no_match: NamedOffset | None,
) -> dict[TopicIdPartition, int]:
    """The offset of each partition of `bounds`. `found` answers `times_ms`; `no_match` replaces an
    answer None, which is an InvalidRequest without it.
    """
    if isinstance(limit, NamedOffset):
        return {partition: _named(limit, bounds[partition]) for partition in bounds}
    if isinstance(limit, SpecificOffsets):
        offsets = _pick(limit.offsets, bounds)
        return {
            partition: _named({-2: EARLIEST, -1: LATEST}[offset], bounds[partition])
            if offset < 0
            else offset
            for partition, offset in offsets.items()
        }
    resolved = {}
    for partition in bounds:
        offset = found[partition]
        if offset is None and no_match is None:
            raise InvalidRequest(
                f"all records of {_name(partition)} are older than this time; choose an earlier "
                "one, or startingOffsetsByTimestampStrategy=latest",
                field=option,
            )
        if offset is None:
            assert no_match is not None, "refused above"
            offset = _named(no_match, bounds[partition])
        resolved[partition] = offset
    return resolved


def ranges(
    starts: Mapping[TopicIdPartition, int], ends: Mapping[TopicIdPartition, int], bounds: Bounds
) -> tuple[list[OffsetRange], list[str]]:
    """(the readable ranges, texts that name the topic and offsets of lost ones)."""
    readable, lost = [], []
    for partition in sorted(starts):
        within, start, end = bounds[partition], starts[partition], ends[partition]
        if start < min(within.earliest, end):
            until = min(within.earliest, end) - 1
            lost.append(
                f"{_span(partition, start, until)} are below the first readable offset, "
                f"{within.earliest}"
            )
        if start > within.latest and start != end:
            lost.append(_beyond(partition, start, within))
        elif max(start, within.latest) < end:
            span = _span(partition, max(start, within.latest), end - 1)
            lost.append(
                f"{span} can't be read (yet): tiered records, for read_committed decided ones, end "
                f"before {within.latest}"
            )
        start, end = max(start, within.earliest), min(end, within.latest)
        if start < end:
            readable.append(OffsetRange(partition, start, end))
    return readable, lost


def beyond(starts: Mapping[TopicIdPartition, int], bounds: Bounds) -> list[str]:
    """Texts that name the starting offsets after the end."""
    return [
        _beyond(partition, start, bounds[partition])
        for partition, start in sorted(starts.items())
        if start > bounds[partition].latest
    ]


def holes(wanted: OffsetRange, segments: Sequence[TieredSegment]) -> list[str]:
    """Texts that name the offsets of the range in no segment. `segments` are ascending."""
    missing, at = [], wanted.start
    for segment in segments:
        if segment.first_offset >= wanted.end:
            break
        if segment.first_offset > at:
            missing.append(_span(wanted.partition, at, segment.first_offset - 1))
        at = max(at, segment.last_offset + 1)
    if at < wanted.end:
        missing.append(_span(wanted.partition, at, wanted.end - 1))
    return [f"{span} are in no tiered segment" for span in missing]


def _named(limit: NamedOffset, bounds: PartitionBounds) -> int:
    return bounds.earliest if limit is EARLIEST else bounds.latest


def _pick(
    values: ByPartition, partitions: Collection[TopicIdPartition]
) -> dict[TopicIdPartition, int]:
    return {partition: values[partition.topic, partition.partition] for partition in partitions}


def unknown_partitions(topic: str, wanted: Collection[int], there: Collection[int]) -> NotFound:
    """The error for an assignment of partitions that are not tiered."""
    missing = sorted(set(wanted) - set(there))
    return NotFound(
        f"assign: {_list([(topic, number) for number in missing])} not tiered; tiered of {topic}: "
        f"{_list([(topic, number) for number in sorted(there)])}"
    )


def _name(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def _beyond(partition: TopicIdPartition, start: int, within: PartitionBounds) -> str:
    return (
        f"{_name(partition)}: the starting offset {start} is after the end of readable offsets, "
        f"{within.latest}"
    )


def _span(partition: TopicIdPartition, first: int, last: int) -> str:
    return f"{_name(partition)}: offsets {first} to {last}"


def _list(names: Sequence[tuple[str, int]]) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown
