"""What of a topic is restored: the data source's own options, partition by partition."""

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
from pipeline.source.options import parse_options
from pipeline.source.tier_view import TierView
from rlm.data_plane.read_request import Isolation


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic, or some of its partitions, and where to begin and end: texts as the data source
    takes them (`earliest`, `latest`, JSON by topic and partition, milliseconds); None: all.
    `skip_lost`: offsets that are in no segment are passed over, and told.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    skip_lost: bool = False

    def query(self, isolation: Isolation) -> dict[str, str]:
        """As options of the data source."""
        subscription = (
            {"assign": json.dumps({self.topic: list(self.partitions)})}
            if self.partitions
            else {"subscribe": self.topic}
        )
        lost = {"failOnDataLoss": "false"} if self.skip_lost else {}
        # A partition whose records are all older has nothing in the range; others may.
        quiet = {"startingOffsetsByTimestampStrategy": "latest"} if self.starting_timestamp else {}
        return {**subscription, **self._limits(), **quiet, **lost, "isolation": isolation.value}

    @property
    def asked(self) -> str:
        """The same for all runs of one command, whatever its limits mean by now. Short: limits by
        topic and partition may be longer than what a target takes as a note.
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
    """Slices by partition, ascending and without a hole; and how tasks read."""

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
    """`only` these partitions are looked at, of all that the limits name; None: all of them.

    InvalidRequest names the option, NotFound what is not tiered (any more).
    """
    query = wanted.query(isolation) | {"columns": ",".join(columns)}
    options = parse_options({**tier_options, **query})
    # What goes while it is read was there at the plan: that is never passed over.
    settings = replace(options.read_settings(), fail_on_data_loss=True)
    pruning = NOTHING_PRUNED if only is None else prune([In(("partition",), tuple(only))])
    found: dict[TopicIdPartition, list[SegmentSlice]] = {}
    for task in plan_batch(TierView(catalogue, settings), options, pruning, quiet_ok=False):
        for part in task:
            found.setdefault(part.segment.partition, []).append(part)
    slices = {each: tuple(parts) for each, parts in sorted(found.items())}
    return Ranges(slices, settings)


def nothing_to_restore(wanted: Wanted) -> NotFound:
    """For a range that holds no offset of any partition."""
    return NotFound(f"no offset of {wanted.topic} is in the range: there is nothing to restore")


def source_name(source: TopicIdPartition, isolation: Isolation) -> str:
    """A partition and how it is read, as a restore notes it."""
    return f"{source} {isolation.value}"


def holes(slices: Sequence[SegmentSlice]) -> tuple[tuple[int, int], ...]:
    """The offsets (inclusive) between slices of one partition, which nobody has any more."""
    return tuple(
        (before.last_offset + 1, after.first_offset - 1)
        for before, after in pairwise(slices)
        if after.first_offset > before.last_offset + 1
    )
