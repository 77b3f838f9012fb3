"""Judges if what stands beside a batch bears out the offsets that it claims. Pure.

Kafka's CRC leaves out a batch's base offset, so a turned bit there makes the batch claim the place
of others. In a log that no cleaner thinned, batches stand one behind another without a gap: the
batches beside it say which offsets it has. Their headers do, whether their records are whole or
not. In a thinned log only what is out of order shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Place(Enum):
    """Of a batch in the log of one source."""

    BORNE_OUT = "borne out"
    """A batch beside it joins it."""
    ALONE = "alone"
    """None joins it, and none has its offsets or is out of order with it."""
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Beside:
    """The last offset of the batch before, or the base offset of the one behind. `near`: it stands
    in the same file; else files between the two may be gone.
    """

    offset: int
    near: bool = True


def place_of(before: Beside | None, first: int, last: int, behind: Beside | None) -> Place:
    """Of a batch that claims `first` to `last` (inclusive). None: not known.

    Across files it is not enough that one side joins, if on the other, in its own file, is a gap.
    """
    gap_before = None if before is None else first - before.offset - 1
    gap_behind = None if behind is None else behind.offset - last - 1
    if gap_before == 0 and (before is None or before.near or gap_behind is None or gap_behind <= 0):
        return Place.BORNE_OUT
    if gap_behind == 0 and (behind is None or behind.near or gap_before is None or gap_before <= 0):
        return Place.BORNE_OUT
    if any(gap is not None and gap < 0 for gap in (gap_before, gap_behind)):
        return Place.CONTRADICTED
    return Place.ALONE
