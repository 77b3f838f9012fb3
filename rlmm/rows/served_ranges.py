"""The segments that serve the offsets of a partition, as ranges in offset order. Pure.

The ranges are the coverage, clipped to each epoch's bounds in the lineage: a diverged segment's
tail and offsets outside the lineage are never returned. The coverage comes from the view's rows, or
from manifests alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlmm.lineage import epoch_bounds
from rlmm.rows.values import Covered

CoveredRanges = Callable[[int, int, int], Iterable[Covered]]
"""The coverage of (epoch, first offset, last offset), ascending; whole ranges, both inclusive."""


class ServedRange(NamedTuple):
    """`segment` serves the offsets `first_offset` to `last_offset`, both inclusive."""

    first_offset: int
    last_offset: int
    segment: Uuid


def served_ranges(
    lineage: Epochs, covered: CoveredRanges, first_offset: int, last_offset: int
) -> Iterator[ServedRange]:
    """The ranges that serve offsets from the first to the last, inclusive, ascending and disjoint.
    No segment serves offsets between two ranges. One segment may have two ranges, where a different
    segment serves an epoch in its middle.
    """
    held: ServedRange | None = None
    below = bisect_right(lineage, first_offset, key=_start_offset)
    for epoch, _ in lineage[max(below - 1, 0) :]:
        bounds = epoch_bounds(lineage, epoch)
        assert bounds is not None, "the epoch is from this lineage"
        low, high = max(bounds[0], first_offset), min(bounds[1], last_offset)
        if low > high:
            continue
        for each in covered(epoch, low, high):
            found = ServedRange(max(each.start, low), min(each.end, high), each.segment)
            if held is not None and _continues(held, found):
                held = held._replace(last_offset=found.last_offset)
                continue
            if held is not None:
                yield held
            held = found
    if held is not None:
        yield held


def _continues(before: ServedRange, after: ServedRange) -> bool:
    return before.segment == after.segment and before.last_offset + 1 == after.first_offset


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset
