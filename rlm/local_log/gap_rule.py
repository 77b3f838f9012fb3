"""Decides if offsets without a batch in a sealed segment are legal, or missing. Pure.

In a log that the cleaner never touched, the first batch starts at the segment's base, each next one
where the previous ended, and the last ends at the next base: markers take an offset each, and no
setting, truncation or election leaves a gap. So a gap is damage of this replica (removed files, or
a broker that rebuilt a lost index and cut the segment at its first bad batch), unless Kafka's
cleaner has worked in the partition: in the gap's own segment, or below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from kafka_formats.errors import CorruptData

RANGES_TOLD_MAX = 1_000
"""Limit of the ranges remembered for one segment; the rest is found once these are repaired."""

DELETE_HORIZON = 0x40
"""Attribute bit of a batch that the cleaner wrote (KIP-534)."""

Offsets = tuple[int, int]  # first and last, both inclusive


class MissingBatches(CorruptData):
    """The segment lacks the batches of `ranges`, and no cleaner is known to have removed them."""

    def __init__(self, ranges: tuple[Offsets, ...], *, source: str, position: int) -> None:
        self.ranges = ranges
        super().__init__(
            f"the batches of {ranges_text(ranges)} are missing, and Kafka's log cleaner has not "
            "worked here: this replica lost them",
            source=source,
            position=position,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the ranges when the error crosses a process border."""
        return _restored, (self.ranges, self.source, self.position)


def _restored(ranges: tuple[Offsets, ...], source: str, position: int) -> MissingBatches:
    return MissingBatches(ranges, source=source, position=position)


def ranges_text(ranges: Collection[Offsets]) -> str:
    shown = [f"{first} to {last}" for first, last in list(ranges)[:3]]
    more = len(ranges) - len(shown)
    return f"offsets {', '.join(shown)}" + (f" and {more} more ranges" if more > 0 else "")


def shows_cleaner(attributes: int, last_offset_delta: int, record_count: int) -> bool:
    """True for a batch that only the cleaner makes: fewer records than offsets, or a delete
    horizon. Brokers accept no such batch from a producer (LogValidator).
    """
    return record_count <= last_offset_delta or bool(attributes & DELETE_HORIZON)


def overlaps(first: int, last: int, ranges: Iterable[Offsets]) -> bool:
    """True if offsets `first` to `last` (inclusive) share one with any of `ranges`."""
    return any(first <= end and start <= last for start, end in ranges)


@dataclass(slots=True)
class GapWatch:
    """Collects the gaps of one segment while its batches are read, and judges them at the end.

    Gaps below `wanted_from` are ignored. `allowed`: the partition is known to be cleaned.
    `once_there`: offsets that are known, not from this segment, to have had batches, so a gap over
    any of them is always damage. `thinned`: some offsets have no batch, or the cleaner rewrote one.
    """

    wanted_from: int = 0
    allowed: bool = False
    once_there: Collection[Offsets] = ()
    cleaned: bool = False
    thinned: bool = False
    _gaps: list[Offsets] = field(default_factory=list)
    _removed: list[Offsets] = field(default_factory=list)
    _position: int = 0

    def gap(self, first: int, last: int, position: int) -> None:
        """Record that no batch has the offsets `first` to `last`; the next one is at `position`."""
        self.thinned = True
        # The whole gap counts here: log start may be inside a removed file.
        is_removed = overlaps(first, last, self.once_there)
        first = max(first, self.wanted_from)
        if first > last:
            return
        enough = self.allowed or len(self._gaps) >= RANGES_TOLD_MAX
        if enough and not is_removed:  # removed ranges are few, and always count
            return
        if not self._gaps:
            self._position = position
        self._gaps.append((first, last))
        if is_removed:
            self._removed.append((first, last))

    def cleaner_seen(self) -> None:
        """Record that a batch of the segment was written by the cleaner (`shows_cleaner`)."""
        self.cleaned = self.thinned = True

    def check(self, source: str) -> None:
        """Check the gaps at the segment's end; MissingBatches if one is not legal."""
        gaps = self._removed if self.cleaned else self._gaps
        if gaps:
            raise MissingBatches(tuple(gaps), source=source, position=self._position)
