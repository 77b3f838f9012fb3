"""Finds the leader epoch of each offset of a partition from its segments alone. Pure.

A segment copied under a higher leader epoch knows more of the log's history, so segments are
considered in that order. A segment that contradicts settled offsets has diverged: a leader copied
it, and a later leader wrote other records at these offsets. It is valid up to the first
contradiction.

A segment's first epoch begins at the segment's start, or anywhere before. So if such an epoch
contradicts a different segment, the offset from which it does is unknown, and to serve offsets in
doubt could return records that the log never kept. Segments in doubt are listed for the operator to
decide.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlmm.rows.coverage import EpochRange, Range, epoch_ranges, ranges_in_lineage, without
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class ResolvedLineage:
    """A resolved lineage, and segment ids. `diverged` segments are wholly outside of it; those
    `in_doubt` may be, in part. `cut` segments are in it, but have a tail outside.
    """

    epochs: Epochs
    diverged: frozenset[Uuid]
    in_doubt: frozenset[Uuid]
    cut: frozenset[Uuid]


def resolve_lineage(
    segments: Sequence[RemoteLogSegmentMetadata], *, accept_doubt: bool = False
) -> ResolvedLineage:
    """The lineage; with `accept_doubt` that of `accepted_lineage`."""
    in_doubt: set[Uuid] = set()
    if accept_doubt:
        lineage = accepted_lineage(segments)
    else:
        lineage, in_doubt = _without_doubt(segments)
    diverged, cut = set(), set()
    for segment in segments:
        id_ = segment.segment_id.id
        if id_ in in_doubt:
            continue
        served = ranges_in_lineage(lineage, epoch_ranges(segment))
        if not served:
            diverged.add(id_)
        elif served[-1][1] < segment.end_offset:
            cut.add(id_)
    return ResolvedLineage(lineage, frozenset(diverged), frozenset(in_doubt), frozenset(cut))


def accepted_lineage(segments: Iterable[RemoteLogSegmentMetadata]) -> Epochs:
    """The lineage that includes segments in doubt, as far as no other segment contradicts them."""
    settled = _Settled()
    for segment in sorted(segments, key=_authority, reverse=True):
        ranges = epoch_ranges(segment)
        end, _ = settled.agrees_up_to(ranges)
        settled.add(segment, ranges, end)
    return settled.lineage()


def _without_doubt(segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[Epochs, set[Uuid]]:
    """The lineage of the segments that are not in doubt, and the ids of those that are."""
    settled, every = _Settled(), _Settled()
    in_doubt: set[Uuid] = set()
    doubtful: list[Range] = []
    for segment in sorted(segments, key=_authority, reverse=True):
        ranges = epoch_ranges(segment)
        end, cause = settled.agrees_up_to(ranges)
        last = min(end, segment.end_offset)
        doubt = None if cause is None else settled.doubt(segment, last, cause)
        told, _ = every.agrees_up_to(ranges)
        every.add(segment, ranges, told)
        if doubt is not None:
            doubtful.append(doubt)
        # A segment in doubt settles nothing; it only puts others at the same offsets in doubt.
        touches = any(low <= last and segment.start_offset <= high for low, high in doubtful)
        if touches or told < end:
            in_doubt.add(segment.segment_id.id)
        else:
            settled.add(segment, ranges, end)
    return settled.lineage(), in_doubt


def _authority(segment: RemoteLogSegmentMetadata) -> tuple[int, int, int, Uuid]:
    last_epoch = segment.leader_epochs[-1][0]
    return last_epoch, segment.end_offset, segment.event_timestamp_ms, segment.segment_id.id


def _epoch(piece: EpochRange) -> int:
    return piece.epoch


@dataclass(slots=True)
class _Settled:
    """Disjoint ranges whose epoch is settled, ascending; their epochs never decrease."""

    pieces: list[EpochRange] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    exact: set[int] = field(default_factory=set)
    """Epochs whose first offset is known: a segment has the offset directly before it."""

    def agrees_up_to(self, ranges: Iterable[EpochRange]) -> tuple[int, EpochRange | None]:
        """The last offset before a contradiction, and the first settled piece that contradicts;
        (OFFSET_MAX, None) without a contradiction.
        """
        for each in ranges:
            conflict = self._first_conflict(each)
            if conflict is not None:
                return conflict[0] - 1, conflict[1]
        return OFFSET_MAX, None

    def _first_conflict(self, each: EpochRange) -> tuple[int, EpochRange] | None:
        at = bisect_right(self.starts, each.start) - 1
        if at >= 0 and self.pieces[at].end < each.start:
            if self.pieces[at].epoch > each.epoch:
                return each.start, self.pieces[at]
            at += 1
        at = max(at, 0)
        if at < len(self.pieces) and self.pieces[at].epoch < each.epoch:
            # Epochs never decrease: a later leader discarded everything of this lower epoch.
            return each.start, self.pieces[at]
        at = bisect_right(self.pieces, each.epoch, at, key=_epoch)
        if at < len(self.pieces) and self.pieces[at].start <= each.end:
            return max(self.pieces[at].start, each.start), self.pieces[at]
        return None

    def doubt(self, segment: RemoteLogSegmentMetadata, end: int, cause: EpochRange) -> Range | None:
        """The offsets up to `end` that only `segment` has, if the later epoch that contradicts it
        may have begun among them; else None.
        """
        if cause.epoch in self.exact:
            return None
        agreed = (piece.end + 1 for piece in self._over(segment.start_offset, end))
        low = max((segment.start_offset, *agreed))
        return (low, end) if low <= end else None

    def _over(self, start: int, end: int) -> Iterator[EpochRange]:
        at = max(bisect_right(self.starts, start) - 1, 0)
        for piece in self.pieces[at : bisect_right(self.starts, end)]:
            if piece.end >= start:
                yield piece

    def add(
        self, segment: RemoteLogSegmentMetadata, ranges: Sequence[EpochRange], end: int
    ) -> None:
        """Settle the epochs of `segment` for offsets up to `end` that are not settled yet."""
        for epoch, low, high in ranges:
            if low > end:
                return
            if low > segment.start_offset:
                self.exact.add(epoch)
            taken = [(piece.start, piece.end) for piece in self._over(low, high)]
            for free in without([(low, min(high, end))], *taken):
                self._insert(EpochRange(epoch, *free))

    def _insert(self, piece: EpochRange) -> None:
        at = bisect_left(self.starts, piece.start)
        if at and self._joins(self.pieces[at - 1], piece):
            at -= 1
            piece = EpochRange(piece.epoch, self.pieces[at].start, piece.end)
            del self.pieces[at], self.starts[at]
        if at < len(self.pieces) and self._joins(piece, self.pieces[at]):
            piece = EpochRange(piece.epoch, piece.start, self.pieces[at].end)
            del self.pieces[at], self.starts[at]
        self.pieces.insert(at, piece)
        self.starts.insert(at, piece.start)

    @staticmethod
    def _joins(lower: EpochRange, upper: EpochRange) -> bool:
        return lower.epoch == upper.epoch and lower.end + 1 == upper.start

    def lineage(self) -> Epochs:
        """The lineage: each epoch with its lowest settled offset."""
        entries: list[EpochEntry] = []
        for piece in self.pieces:
            if not entries or entries[-1].epoch != piece.epoch:
                entries.append(EpochEntry(piece.epoch, piece.start))
        return tuple(entries)
