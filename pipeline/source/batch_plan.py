"""Plans the tasks of a batch query from one state of the tier."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.read.segment_slice import SegmentSlice, plan_slices
from pipeline.source.data_loss import report_lost
from pipeline.source.filters import NOTHING_PRUNED, Pruning
from pipeline.source.offset_limits import LATEST, OffsetLimit, SpecificOffsets
from pipeline.source.offsets import (
    NAMES_SHOWN_MAX,
    OffsetRange,
    check_complete,
    holes,
    ranges,
    resolve,
    times_ms,
)
from pipeline.source.options import SourceOptions
from pipeline.source.plan import Task, plan_tasks
from pipeline.source.tier_view import PartitionView, TierView

log = logging.getLogger("strandline.source")


def plan_batch(
    tier: TierView,
    options: SourceOptions,
    pruning: Pruning = NOTHING_PRUNED,
    *,
    quiet_ok: bool = True,
) -> list[Task]:
    """The tasks; none if nothing is left to read. `quiet_ok`: a named partition without tiered
    segments counts as empty.

    NotFound for a topic or partition; Conflict(DATA_LOSS) as failOnDataLoss decides; InvalidRequest
    names an option that does not fit the tiered offsets.
    """
    starting, ending = options.batch_start(), options.batch_end()
    every = tier.subscribed(options.subscription, quiet_ok=quiet_ok)
    quiet = may_be_quiet(options, every) if quiet_ok else lambda *_: False
    check_complete(starting, every, option=starting_option(options), quiet=quiet)
    check_complete(ending, every, option=ending_option(options), quiet=quiet)
    kept = [partition for partition in every if pruning.keeps(partition)]
    views = tier.partitions(dict.fromkeys(kept, 0))
    absent = [partition for partition in kept if partition not in views]
    _check_absent(tier, options, absent, every, quiet_ok=quiet_ok)
    bounds = {partition: view.bounds for partition, view in views.items()}
    starts = resolve(
        starting,
        bounds,
        tier.first_offsets(times_ms(starting, views), views),
        option=starting_option(options),
        no_match=LATEST if options.no_match_is_latest else None,
    )
    ends = resolve(
        ending,
        bounds,
        tier.first_offsets(times_ms(ending, views), views),
        option=ending_option(options),
        no_match=LATEST,
    )
    ends = {one: _end(ending, one, end, views[one], pruning) for one, end in ends.items()}
    readable, lost = ranges(starts, ends, bounds)
    slices: list[SegmentSlice] = []
    for wanted in readable:
        wanted = OffsetRange(
            wanted.partition,
            max(wanted.start, pruning.first_offset),
            min(wanted.end, pruning.last_offset + 1),
        )
        parts, missing = slices_of(wanted, views[wanted.partition], options)
        lost += missing
        slices += [
            part for part in parts if pruning.keeps_timestamps_to(part.segment.max_timestamp_ms)
        ]
    report_lost(lost, fail=options.fail_on_data_loss)
    return tasks_of(slices, options)


def _end(
    limit: OffsetLimit, partition: TopicIdPartition, end: int, view: PartitionView, pruning: Pruning
) -> int:
    """The end of a partition; if the query reads to the end, above the offsets that only segments
    in doubt have: these are lost, unless a filter leaves them out.
    """
    if isinstance(limit, SpecificOffsets):
        if limit.offsets[partition.topic, partition.partition] >= 0:
            return end
    elif end != view.bounds.latest:
        return end
    return max(end, min(view.lost_to, pruning.last_offset + 1))


def _check_absent(
    tier: TierView,
    options: SourceOptions,
    absent: Sequence[TopicIdPartition],
    every: Sequence[TopicIdPartition],
    *,
    quiet_ok: bool,
) -> None:
    """Raise NotFound for a partition that was deleted, for one without a finished segment that
    `assign` names unless `quiet_ok`, and for a named topic none of whose partitions has one. A
    folder alone shows no records: it exists from the first upload on, even if that never finishes.
    """
    for partition in absent:
        if partition not in tier.unfinished:
            raise NotFound(f"{partition} was deleted while the query was planned")
    named = options.subscription
    others = {each.topic for each in set(every) - set(absent)}
    for partition in absent:
        is_empty_topic = bool(named.topics) and partition.topic not in others
        if is_empty_topic or (named.assign and not quiet_ok):
            raise NotFound(
                f"{partition} has a folder, but no finished segment yet: wait until one is copied"
            )
    if absent:
        log.warning(
            "%s have a folder but no finished segment: they are read as empty",
            ", ".join(map(str, absent[:NAMES_SHOWN_MAX])),
        )


def may_be_quiet(
    options: SourceOptions, tiered: Sequence[TopicIdPartition]
) -> Callable[[str, int], bool]:
    """A test for partitions that options may name although they have no tiered segment: assigned
    ones, or any partition of a tiered topic.
    """
    assigned = options.subscription.assign
    topics = {partition.topic for partition in tiered}

    def quiet(topic: str, number: int) -> bool:
        return number in assigned.get(topic, ()) if assigned else topic in topics

    return quiet


def slices_of(
    wanted: OffsetRange, view: PartitionView, options: SourceOptions
) -> tuple[list[SegmentSlice], list[str]]:
    """(the slices to read of a partition, texts that name its offsets in no segment)."""
    if not wanted.count:
        return [], []
    parts = plan_slices(view.segments, wanted.start, wanted.end - 1, options.isolation)
    return parts, holes(wanted, view.segments)


def tasks_of(slices: list[SegmentSlice], options: SourceOptions) -> list[Task]:
    """The slices packed into tasks as the options ask."""
    return plan_tasks(
        slices,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )


def starting_option(options: SourceOptions) -> str:
    """The name of the option in effect for the start."""
    return _first(options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")


def ending_option(options: SourceOptions) -> str:
    """The name of the option in effect for the end."""
    return _first(options, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


def _first(options: SourceOptions, *names: str) -> str:
    return next((name for name in names if name in options.given), names[-1])
