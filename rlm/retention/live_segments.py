"""The segments that serve offsets of a partition, and which of them a log start needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlmm.partition_state import UNLIMITED
from rlmm.rows.coverage import EpochRange, without
from rlmm.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Live:
    """A segment that serves offsets from log start on, `low` to `high`; `ranges`: by epoch."""

    row: RemoteLogSegmentMetadata
    low: int
    high: int
    ranges: tuple[EpochRange, ...]
    expires_ms: int | None

    def is_expired(self, now_ms: int) -> bool:
        """True if its retention by time is over."""
        return is_past(self.expires_ms, now_ms)


def start_by_size(wanted: int, start: int, live: Sequence[Live]) -> int:
    """The highest offset from which on the tier still holds the `wanted` bytes; `start`, the log
    start, if it holds no more.
    """
    if wanted == UNLIMITED or not live:
        return start
    counted, lowest = 0, max(each.high for each in live) + 1
    for each in sorted(live, key=_reach, reverse=True):
        if counted >= wanted:
            return lowest
        if each.high < lowest:
            counted += _whole_bytes(each)
            lowest = each.low
    return lowest if counted >= wanted else start


def _whole_bytes(live: Live) -> int:
    """The segment's bytes if all of it is in the lineage; else 0: those of a part are unknown."""
    served = sum(each.end - each.start + 1 for each in live.ranges)
    whole = live.row.end_offset - live.row.start_offset + 1
    return live.row.size_bytes if served == whole else 0


def _reach(live: Live) -> tuple[int, int]:
    return live.high, live.row.finished_at


def settled(old_start: int, start: int, live: Sequence[Live]) -> tuple[int, list[Live]]:
    """The log start, not above the first kept segment, and the segments to delete with it.

    A segment across the log start is deleted if other segments hold its offsets above; else it is
    kept, and its offsets below stay readable. Each round lowers the log start or is the last.
    """
    while True:
        kept_low = _first_kept_across(start, live)
        if kept_low is None:
            break
        start = max(old_start, kept_low)
    return start, gone_with(start, live)


def gone_with(start: int, live: Sequence[Live]) -> list[Live]:
    """The segments that a log start at `start` needs no more, in the order of their deletion."""
    going = [each for each in live if each.high < start]
    going.sort(key=lambda each: (each.low, each.row.segment_id.id))
    return [*going, *_across(start, live)]


def _across(start: int, live: Sequence[Live]) -> list[Live]:
    """The unneeded segments across `start`, in the order in which they may be deleted."""
    remaining = {each.row.segment_id.id: each for each in live if each.high >= start}
    going = []
    for each in sorted(live, key=_reach):
        if each.low < start <= each.high:
            del remaining[each.row.segment_id.id]
            if _held_by(remaining.values(), each, start):
                going.append(each)
            else:
                remaining[each.row.segment_id.id] = each
    return going


def _first_kept_across(start: int, live: Sequence[Live]) -> int | None:
    going = {each.row.segment_id.id for each in _across(start, live)}
    kept = [
        each.low
        for each in live
        if each.low < start <= each.high and each.row.segment_id.id not in going
    ]
    return min(kept, default=None)


def _held_by(others: Iterable[Live], gone: Live, start: int) -> bool:
    """True if others have, in the same epochs, all that `gone` serves at or above `start`."""
    near = [each for each in others if each.low <= gone.high]
    for epoch, low, high in gone.ranges:
        if high < start:
            continue
        free = [(max(low, start), high)]
        for other in near:
            free = without(free, *((r.start, r.end) for r in other.ranges if r.epoch == epoch))
        if free:
            return False
    return True


def is_past(expires_ms: int | None, now_ms: int) -> bool:
    """True after the end of a retention that has one (Unix milliseconds)."""
    return expires_ms is not None and now_ms > expires_ms
