"""Judges a batch's offsets by the batches directly before and after it in its file. Pure.

Kafka's CRC leaves out a batch's base offset, so a flipped bit there gives the batch offsets of
other batches. The headers of the neighbours show it, even where their records are damaged.
"""

from __future__ import annotations


def joins(before: int | None, first: int, last: int, behind: int | None) -> bool:
    """True if one of the two joins the batch `first` to `last` (inclusive) without a gap.

    `before`: the last offset of the batch before it; `behind`: the first one of the batch after
    it. None: not known.
    """
    return before == first - 1 or behind == last + 1


def is_in_order(before: int | None, first: int, last: int, behind: int | None) -> bool:
    """True if the batch before ends below this one, and the batch after begins above it."""
    return (before is None or before < first) and (behind is None or last < behind)
