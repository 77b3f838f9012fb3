"""Cuts a bucket's keys into ranges that tasks list at the same time. Pure.

The ranges together hold every possible key, so that, whatever the boundaries, no object is missed
or listed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PARTITION_MARKS_MAX_TOPICS = 200
"""Up to this number of topics, each is also cut by the first digit of the partition."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys of a store above `after` up to `last`, by their UTF-8 bytes; None: without a bound."""

    store: str
    after: str | None
    last: str | None

    def holds_no_more(self, key: str) -> bool:
        """True if the range ends before `key`."""
        return self.last is not None and key.encode() > self.last.encode()


def behind_folder(folder: str) -> str:
    """The lowest text above every key in `folder`, which ends with a slash."""
    return folder[:-1] + "0"


def marks_of_folders(folders: Sequence[str]) -> list[str]:
    """Boundaries at the ends of folders, and, if they are few, inside them: partitions are folders
    whose names begin with a digit.
    """
    marks = [behind_folder(each) for each in folders]
    if len(folders) <= PARTITION_MARKS_MAX_TOPICS:
        marks += [f"{each}{digit}" for each in folders for digit in range(1, 10)]
    return marks


def ranges_between(store: str, marks: Iterable[str]) -> list[KeyRange]:
    """Ranges of the whole store, cut at the marks."""
    cuts = sorted(set(marks), key=str.encode)
    lows: list[str | None] = [None, *cuts]
    highs: list[str | None] = [*cuts, None]
    return [KeyRange(store, low, high) for low, high in zip(lows, highs, strict=True)]


def dealt_out(ranges: Sequence[KeyRange], groups: int) -> list[list[KeyRange]]:
    """The ranges in at most `groups` groups, neighbours apart, so that many tasks share a large
    topic.
    """
    count = max(1, min(groups, len(ranges)))
    return [list(ranges[at::count]) for at in range(count)]
