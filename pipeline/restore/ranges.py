"""Finds the ranges of a topic to restore, with the data source's own options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import In

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import Catalogue
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from pipeline.source.batch_plan import plan_batch
from pipeline.source.filters import NOTHING_PRUNED, prune
from pipeline.source.offset_limits import ByPartition, parse_offsets
from pipeline.source.options import parse_options
from pipeline.source.tier_view import TierView
from rlm.data_plane.read_request import Isolation


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic, or some of its partitions, with start and end as in the data source's options
    (`earliest`, `latest`, JSON by topic and partition, milliseconds); None: all. `skip_lost`:
    offsets in no segment are skipped and reported.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    skip_lost: bool = False

    def query(self, isolation: Isolation) -> dict[str, str]:
        """The options of the data source."""
        subscription = (
            {"assign": json.dumps({self.topic: list(self.partitions)})}
            if self.partitions
            else {"subscribe": self.topic}
        )
        lost = {"failOnDataLoss": "false"} if self.skip_lost else {}
        # A partition whose records are all older is empty in the range; others may not be.
        quiet = {"startingOffsetsByTimestampStrategy": "latest"} if self.starting_timestamp else {}
        return {**subscription, **self._limits(), **quiet, **lost, "isolation": isolation.value}

    @property
    def asked(self) -> str:
        """A short id of the limits, the same for all runs of one command, though the offsets that
        they mean may change. Limits by topic and partition may be too long for a target's note.
        """
        limits = json.dumps(self._limits(), sort_keys=True)
        return hashlib.sha256(limits.encode()).hexdigest()[:16]

    def _limits(self) -> dict[str, str]:
        limits = {
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
            "startingTimestamp": self.starting_timestamp,
            "endingTimestamp": self.ending_timestamp,
        }
        return {name: value for name, value in limits.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Ranges:
    """Slices by partition, ascending, and the settings with which tasks read."""

    slices: Mapping[TopicIdPartition, tuple[SegmentSlice, ...]]
    settings: ReadSettings


def find_ranges(
    catalogue: Catalogue,
    tier_options: Mapping[str, str],
    wanted: Wanted,
    isolation: Isolation,
    columns: tuple[str, ...],
    *,
    only: Collection[int] | None = None,
) -> Ranges:
    """The ranges of `only` these partitions, of all that the limits name; None: all of them.

    InvalidRequest names the option, NotFound the topic or partition not tiered (any more).
    """
    query = wanted.query(isolation) | {"columns": ",".join(columns)}
    options = parse_options({**tier_options, **query})
    # Segments deleted after the plan are an error in any case, even with `skip_lost`.
    settings = replace(options.read_settings(), fail_on_data_loss=True)
    pruning = NOTHING_PRUNED if only is None else prune([In(("partition",), tuple(only))])
    found: dict[TopicIdPartition, list[SegmentSlice]] = {}
    for task in plan_batch(TierView(catalogue, settings), options, pruning, quiet_ok=False):
        for part in task:
            found.setdefault(part.segment.partition, []).append(part)
    slices = {each: tuple(parts) for each, parts in sorted(found.items())}
    return Ranges(slices, settings)


def nothing_to_restore(wanted: Wanted) -> NotFound:
    """The error for a range without an offset of any partition."""
    return NotFound(f"no offset of {wanted.topic} is in the range: there is nothing to restore")


def source_name(source: TopicIdPartition, isolation: Isolation) -> str:
    """A partition and its isolation, in the form of a restore's note."""
    return f"{source} {isolation.value}"


def holes(slices: Sequence[SegmentSlice]) -> tuple[tuple[int, int], ...]:
    """The offsets (inclusive) between slices of one partition, which no longer exist."""
    return tuple(
        (before.last_offset + 1, after.first_offset - 1)
        for before, after in pairwise(slices)
        if after.first_offset > before.last_offset + 1
    )


class AskedOffsets:
    """The offsets that the limits name for a partition, to find those that were not read."""

    def __init__(self, wanted: Wanted) -> None:
        self._starts = _by_partition(wanted.starting_offsets, "startingOffsets")
        self._ends = _by_partition(wanted.ending_offsets, "endingOffsets")

    def outside(
        self, source: TopicIdPartition, first: int, end: int
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """The requested offsets (inclusive) before `first`, and those from `end` on."""
        start, stop = self._of(source)
        before = () if start is None or start >= first else ((start, first - 1),)
        behind = () if stop is None or stop <= end else ((end, stop - 1),)
        return before, behind

    def all_of(self, source: TopicIdPartition) -> tuple[tuple[int, int], ...]:
        """All requested offsets of a partition of which no record was read."""
        start, stop = self._of(source)
        return () if start is None or stop is None or start >= stop else ((start, stop - 1),)

    def _of(self, source: TopicIdPartition) -> tuple[int | None, int | None]:
        start, stop = (
            limits.get((source.topic, source.partition), -1)
            for limits in (self._starts, self._ends)
        )
        return (None if start < 0 else start), (None if stop < 0 else stop)


def _by_partition(text: str | None, option: str) -> ByPartition:
    """The offsets in JSON; none of a name."""
    is_json = text is not None and text.lstrip().startswith("{")
    return parse_offsets(text, option=option) if text is not None and is_json else {}
