"""Judges a batch's offsets by the batches directly before and behind it in its file. Pure.

Kafka's CRC leaves out a batch's base offset, so a turned bit there makes the batch claim the place
of others. The neighbours' headers tell, whether their records are whole or not.
"""

from __future__ import annotations


def joins(before: int | None, first: int, last: int, behind: int | None) -> bool:
    """True if one of the two joins the batch `first` to `last` (inclusive) without a gap.

    `before`: the last offset of the batch before it; `behind`: the first one of the batch behind
    it. None: not known.
    """
    return before == first - 1 or behind == last + 1


def is_in_order(before: int | None, first: int, last: int, behind: int | None) -> bool:
    """True if none of the two has an offset of the batch, or one beyond it."""
    return (before is None or before < first) and (behind is None or last < behind)
