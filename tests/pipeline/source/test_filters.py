"""What may be left out by Spark's filters: never a record that they let through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pipeline.source.filters import prune
from tests.pipeline.source.tiered import partition

COMPARISONS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def passes(one: Filter, record: dict[str, Any]) -> bool:
    """The obvious way."""
    if isinstance(one, Not):
        return not passes(one.child, record)
    if isinstance(one, IsNotNull):
        return True
    assert not isinstance(one, IsNull)
    path: Any = one.attribute  # type: ignore[attr-defined]  # every one that is drawn has it
    wanted: Any = one.value  # type: ignore[attr-defined]  # the same
    return bool(COMPARISONS[type(one)](record[path[0]], wanted))


def values(column: str) -> st.SearchStrategy[Any]:
    if column == "topic":
        return st.sampled_from(["orders", "payments", "öre"])
    if column == "timestamp":
        return st.integers(0, 5_000).map(lambda us: EPOCH + timedelta(microseconds=us))
    return st.integers(-1, 6)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(["topic", "partition", "offset", "timestamp"]))
    kind: Any = draw(st.sampled_from([*COMPARISONS, IsNotNull]))
    one: Filter
    if kind is IsNotNull:
        one = IsNotNull((column,))
    elif kind is In:
        one = In((column,), draw(st.lists(values(column), max_size=3)))  # type: ignore[arg-type]
        # Spark hands over a list, whatever the declaration says.
    else:
        one = kind((column,), draw(values(column)))
    return Not(one) if draw(st.booleans()) else one


@given(
    st.lists(filters(), max_size=4),
    st.sampled_from(["orders", "payments"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_no_record_that_passes_is_left_out(
    given_filters: list[Filter], topic: str, number: int, offset: int, time_ms: int, older_ms: int
) -> None:
    record = {
        "topic": topic,
        "partition": number,
        "offset": offset,
        "timestamp": EPOCH + timedelta(milliseconds=time_ms),
    }
    pruning = prune(given_filters)
    left_out = not (
        pruning.keeps(partition(topic, number))
        and pruning.first_offset <= offset <= pruning.last_offset
        and pruning.keeps_timestamps_to(time_ms + older_ms)
    )
    assert not (left_out and all(passes(one, record) for one in given_filters))


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (EqualTo(("partition",), 1), [1]),
        (Not(EqualTo(("Partition",), 1)), [0, 2]),
        (In(("partition",), (0, 2)), [0, 2]),
        (LessThan(("partition",), 2), [0, 1]),
        (StringStartsWith(("topic",), "pay"), []),
        (EqualTo(("topic",), "orders"), [0, 1, 2]),
        (EqualTo(("topic", "inner"), "x"), [0, 1, 2]),
        (IsNull(("topic",)), [0, 1, 2]),
    ],
)
def test_partitions_are_left_out(one: Filter, kept: list[int]) -> None:
    pruning = prune([one])
    assert [number for number in range(3) if pruning.keeps(partition(number=number))] == kept


def test_offsets_and_times_are_cut_to_what_all_filters_allow() -> None:
    pruning = prune(
        [
            GreaterThan(("offset",), 10),
            LessThanOrEqual(("offset",), 20),
            In(("offset",), (5, 12, 30)),
            GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=5)),
            LessThan(("timestamp",), EPOCH + timedelta(days=1)),
        ]
    )
    assert (pruning.first_offset, pruning.last_offset) == (11, 20)
    assert not pruning.keeps_timestamps_to(5)
    assert pruning.keeps_timestamps_to(6)
    assert pruning.keeps_timestamps_to(-1)


def test_a_value_that_is_not_of_the_columns_type_leaves_nothing_out() -> None:
    pruning = prune(
        [
            EqualTo(("timestamp",), datetime(2030, 1, 1)),
            EqualTo(("offset",), "7"),
            EqualTo(("partition",), 7.5),
            In(("offset",), (1, None)),
            EqualTo(("value",), b"x"),
        ]
    )
    assert pruning.keeps(partition())
    assert (pruning.first_offset, pruning.last_offset) == (0, 2**62)
    assert pruning.keeps_timestamps_to(0)
