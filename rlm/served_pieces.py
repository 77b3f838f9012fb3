"""Which finished segment serves an offset of a partition, and up to where. Pure.

Walks the view's coverage in the order of the merged lineage, so that a diverged segment's dead tail
and offsets outside the lineage are never named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from rlmm.partition_state import PartitionState
from rlmm.queries import SegmentAnswer
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

HOPS_MAX = 10_000
"""Steps over holes in one look-up; each hop goes to another segment or epoch."""


@dataclass(frozen=True, slots=True)
class Served:
    """`metadata` serves [`offset`, `valid_until`] (inclusive)."""

    offset: int
    metadata: RemoteLogSegmentMetadata
    valid_until: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """A partition's state with the two look-ups that a walk needs."""

    state: PartitionState
    segment_for_offset: Callable[[int, int], SegmentAnswer | None]
    segments: Callable[[], Iterable[RemoteLogSegmentMetadata]]


def served_at_or_after(coverage: Coverage, offset: int) -> Served | None:
    """The segment that serves `offset`, or else the next offset above that is served, or None."""
    state = coverage.state
    for _ in range(HOPS_MAX):
        offset = max(offset, state.log_start_offset, 0)
        if state.highest_copied is None or offset > state.highest_copied[0]:
            return None
        epoch = epoch_for_offset(state.lineage, offset)
        if epoch is None and state.lineage:
            epoch = state.lineage[0].epoch  # where it starts is only where knowledge starts
        found = coverage.segment_for_offset(epoch, offset) if epoch is not None else None
        if found is not None and found.valid_until >= offset:
            return Served(offset, found.metadata, found.valid_until)
        following = _next_candidate(coverage, offset)
        if following is None:
            return None
        offset = following
    return None


def _next_candidate(coverage: Coverage, offset: int) -> int | None:
    """The lowest offset above at which another segment or epoch begins, or a lost range ends."""
    state = coverage.state
    starts = [entry.start_offset for entry in state.lineage if entry.start_offset > offset]
    starts += [lost.end + 1 for lost in state.lost_ranges if lost.end >= offset]
    starts += [
        start
        for segment in coverage.segments()
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED and segment.end_offset > offset
        for _, start in segment.leader_epochs
        if start > offset
    ]
    return min(starts, default=None)
