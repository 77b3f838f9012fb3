"""Sets of offsets as ascending, disjoint ranges. Pure.

The exported offsets of a partition are such a set: runs add to its end, a backfill adds anywhere.
First and last offset are both inclusive; adjacent ranges are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_formats.errors import InvalidRequest

Ranges = tuple[tuple[int, int], ...]


def united(*sets: Iterable[tuple[int, int]]) -> Ranges:
    """The offsets that are in any of them."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(each for ranges in sets for each in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def without(ranges: Iterable[tuple[int, int]], taken: Ranges) -> Ranges:
    """The offsets of `ranges` that are not in `taken`."""
    left: list[tuple[int, int]] = []
    for first, last in ranges:
        at = first
        for taken_first, taken_last in taken:
            if taken_last < at:
                continue
            if taken_first > last:
                break
            if taken_first > at:
                left.append((at, taken_first - 1))
            at = taken_last + 1
        if at <= last:
            left.append((at, last))
    return united(left)


def overlap(one: Iterable[tuple[int, int]], other: Ranges) -> Ranges:
    """The offsets that are in both."""
    one = united(one)
    return without(one, without(one, other))


def count(ranges: Ranges) -> int:
    """Number of offsets in the set."""
    return sum(last - first + 1 for first, last in ranges)


def end(ranges: Ranges) -> int:
    """The offset after the last one; 0 for an empty set."""
    return ranges[-1][1] + 1 if ranges else 0


def as_json(sets: Mapping[str, Ranges]) -> dict[str, list[list[int]]]:
    """Sets by partition, in the form of commits."""
    return {name: [list(each) for each in ranges] for name, ranges in sorted(sets.items())}


def from_json(given: object, *, source: str) -> dict[str, Ranges]:
    """The inverse of `as_json`; InvalidRequest, naming `source`, for other programs' JSON."""
    try:
        assert isinstance(given, dict)
        sets = {
            str(name): tuple((int(first), int(last)) for first, last in ranges)
            for name, ranges in given.items()
        }
        assert all(united(ranges) == ranges for ranges in sets.values())
        assert all(0 <= first <= last for ranges in sets.values() for first, last in ranges)
    except (AssertionError, TypeError, ValueError):
        raise InvalidRequest(
            "holds offsets that Strandline did not write; export to a different table or under a "
            "different name",
            field=source,
        ) from None
    return sets
