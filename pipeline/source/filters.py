"""Leaves out whole partitions and segments by Spark's filters. Pure.

Only partitions and segments without a wanted record are left out. Every filter also goes back to
Spark, which applies it to each record, so a filter not understood here costs time but never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import OFFSET_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pruning:
    """The part left to read: `first_offset` to `last_offset` (inclusive) of the partitions that
    pass `keeps`, without segments whose newest record is older than `min_timestamp_us`.
    """

    filters: tuple[Filter, ...] = ()
    first_offset: int = 0
    last_offset: int = OFFSET_MAX
    min_timestamp_us: int | None = None

    def keeps(self, partition: TopicIdPartition) -> bool:
        """True if any record of the partition can pass the filters."""
        known: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
        return not any(
            _holds(one, known[column]) is False
            for one in self.filters
            if (column := _column(one)) in known
        )

    def keeps_timestamps_to(self, max_timestamp_ms: int) -> bool:
        """True if a segment with this largest timestamp can hold a wanted record; -1: unknown."""
        if self.min_timestamp_us is None or max_timestamp_ms < 0:
            return True
        return max_timestamp_ms * 1_000 >= self.min_timestamp_us


NOTHING_PRUNED = Pruning()


def prune(filters: Iterable[Filter]) -> Pruning:
    """The pruning by all filters together (AND)."""
    kept = tuple(filters)
    first, last = 0, OFFSET_MAX
    youngest: int | None = None
    for one in kept:
        column = _column(one)
        low, high = _interval(one, _microseconds if column == "timestamp" else _integer)
        if column == "offset":
            first = first if low is None else max(first, low)
            last = last if high is None else min(last, high)
        elif column == "timestamp" and low is not None:
            youngest = low if youngest is None else max(youngest, low)
    return Pruning(kept, first, last, youngest)


def _column(one: Filter) -> str | None:
    """The column of a filter, as Spark writes it; None for a field inside a column."""
    while isinstance(one, Not):
        one = one.child
    path: Sequence[str] = getattr(one, "attribute", ())
    return path[0].lower() if len(path) == 1 else None


def _interval(one: Filter, number: Callable[[object], int | None]) -> tuple[int | None, int | None]:
    """Lowest and highest value that passes a filter, both inclusive; None: no limit."""
    if isinstance(one, In):
        values = [number(value) for value in one.value]
        known = [value for value in values if value is not None]
        return (min(known), max(known)) if known and len(known) == len(values) else (None, None)
    value = number(getattr(one, "value", None))
    if value is None:
        return None, None
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value
    if isinstance(one, GreaterThan):
        return value + 1, None
    if isinstance(one, GreaterThanOrEqual):
        return value, None
    if isinstance(one, LessThan):
        return None, value - 1
    if isinstance(one, LessThanOrEqual):
        return None, value
    return None, None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: object) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _holds(one: Filter, value: Any) -> bool | None:
    """True if this value passes the filter, False if not; None if unknown."""
    if isinstance(one, Not):
        inner = _holds(one.child, value)
        return None if inner is None else not inner
    if isinstance(one, In):
        same = [type(wanted) is type(value) for wanted in one.value]
        return value in one.value if all(same) else None
    wanted = getattr(one, "value", None)
    if type(wanted) is not type(value):
        return None
    test = _TESTS.get(type(one))
    return None if test is None else test(value, wanted)


_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, wanted: bool(value == wanted),
    EqualNullSafe: lambda value, wanted: bool(value == wanted),
    StringStartsWith: lambda value, wanted: bool(value.startswith(wanted)),
    StringEndsWith: lambda value, wanted: bool(value.endswith(wanted)),
    StringContains: lambda value, wanted: wanted in value,
    GreaterThan: lambda value, wanted: bool(value > wanted),
    GreaterThanOrEqual: lambda value, wanted: bool(value >= wanted),
    LessThan: lambda value, wanted: bool(value < wanted),
    LessThanOrEqual: lambda value, wanted: bool(value <= wanted),
}
