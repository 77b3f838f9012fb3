"""The plan of the shadow's transactions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InternalError
from rlm.migration.shadow_plan import (
    HEADER,
    FoundRecord,
    ShadowRow,
    Tail,
    TransactionLimits,
    after_writing,
    differing,
    header_value,
    lost_records,
    metadata_offset_in,
    next_transaction,
    tail_after,
)

PARTITIONS = 3
NO_LIMITS = TransactionLimits()


def row(offset: int, partition: int = 0, value: bytes = b"value") -> ShadowRow:
    return ShadowRow(offset, 1_000, partition, value)


def found(topic_offset: int, metadata_offset: int | None, value: bytes = b"value") -> FoundRecord:
    return FoundRecord(topic_offset, metadata_offset, value)


ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, PARTITIONS - 1), st.binary(max_size=20)),
    max_size=30,
)
LIMITS = st.builds(
    TransactionLimits,
    rows_max=st.integers(1, 6),
    bytes_max=st.integers(1, 60),
    looked_at_max=st.integers(1, 40),
)


def rows_of(steps: Sequence[tuple[int, int, bytes]]) -> list[ShadowRow]:
    rows, offset = [], 0
    for step, partition, value in steps:
        offset += step
        rows.append(row(offset, partition, value))
    return rows


@given(ROWS, LIMITS, st.lists(st.integers(-1, 60), min_size=PARTITIONS, max_size=PARTITIONS))
def test_every_row_above_its_tail_is_written_once_in_order(
    steps: Sequence[tuple[int, int, bytes]], limits: TransactionLimits, lasts: Sequence[int]
) -> None:
    rows, kept = rows_of(steps), rows_of(steps)
    tails = {at: Tail(0, last, last) for at, last in enumerate(lasts)}
    written: dict[int, list[int]] = {at: [] for at in tails}
    for _ in range(2 * len(rows) + 1):
        plan = next_transaction(kept, tails, limits)
        count = sum(map(len, plan.rows.values()))
        size = sum(len(each.value) for some in plan.rows.values() for each in some)
        assert count <= limits.rows_max
        assert size <= limits.bytes_max or count == 1
        for at, some in plan.rows.items():
            written[at] += [each.offset for each in some]
        tails = after_writing(tails, plan)
        if plan.written_up_to is not None:
            kept = [each for each in kept if each.offset > plan.written_up_to]
    assert kept == []
    for at, last in enumerate(lasts):
        assert written[at] == [
            each.offset for each in rows if each.partition == at and each.offset > last
        ]


@given(ROWS, st.integers(0, PARTITIONS - 1))
def test_rows_of_a_partition_without_leader_wait_and_those_behind_are_kept(
    steps: Sequence[tuple[int, int, bytes]], away: int
) -> None:
    rows = rows_of(steps)
    tails = {at: Tail() for at in range(PARTITIONS) if at != away}
    plan = next_transaction(rows, tails, NO_LIMITS)
    assert {at: [*some] for at, some in plan.rows.items()} == {
        at: some for at in tails if (some := [each for each in rows if each.partition == at])
    }
    plan = next_transaction(rows, after_writing(tails, plan), NO_LIMITS)
    assert plan.rows == {}
    first = next((each.offset for each in rows if each.partition == away), None)
    below = [each.offset for each in rows if first is None or each.offset < first]
    assert plan.written_up_to == (below[-1] if below else None)


@pytest.mark.parametrize(
    ("tails", "rows", "hides"),
    [
        ({0: Tail(0, 3, 3)}, (1, 2, 3), True),
        ({0: Tail(0, 3, 3)}, (1, 2, 3, 4), True),
        ({0: Tail(0, 3, 3)}, (1, 2), False),
        ({0: Tail(0, 2, 2)}, (1, 2, 3), False),
        ({}, (1, 2, 3), False),
    ],
)
def test_written_rows_hide_others_if_no_more_are_looked_at(
    tails: dict[int, Tail], rows: Sequence[int], hides: bool
) -> None:
    """Those of a partition without leader do not: no report removes them."""
    plan = next_transaction(map(row, rows), tails, TransactionLimits(looked_at_max=3))
    assert plan.hides_others is hides


def test_rows_that_do_not_ascend_are_a_bug() -> None:
    with pytest.raises(InternalError, match="row 3 of the shadow comes after row 4"):
        next_transaction([row(4), row(3)], {}, NO_LIMITS)


def test_what_is_found_counts_whatever_became_of_its_transaction() -> None:
    read = tail_after(Tail(5, 10, 10), [found(5, 11), found(7, 15)], 9)
    assert (read.tail, read.foreign, read.disorder) == (Tail(9, 15, 15), None, None)


def test_own_writes_that_are_read_later_are_no_repetition() -> None:
    tails = after_writing({0: Tail(5, 10, 10)}, next_transaction([row(11)], {0: Tail()}, NO_LIMITS))
    assert tails == {0: Tail(5, 10, 11)}
    read = tail_after(tails[0], [found(5, 11)], 7)
    assert (read.tail, read.disorder) == (Tail(7, 11, 11), None)


def test_foreign_and_repeated_records_are_told() -> None:
    read = tail_after(
        Tail(0, 10, 10), [found(0, None), found(1, None), found(2, 9), found(3, 12)], 4
    )
    assert read.foreign == found(0, None)
    assert read.disorder == found(2, 9)
    assert read.tail.last == 12


def test_a_record_that_is_not_its_row_is_told() -> None:
    kept = {11: b"value", 12: b"other"}.get
    assert differing([found(0, 11), found(1, None), found(2, 13)], kept) is None
    assert differing([found(0, 11), found(1, 12)], kept) == found(1, 12)


def test_the_header_is_the_metadata_offset() -> None:
    assert metadata_offset_in([("other", b"1"), (HEADER, header_value(2**40 + 5))]) == 2**40 + 5
    assert metadata_offset_in([(HEADER, b"short"), (HEADER, None), ("x", header_value(1))]) is None


def test_a_topic_that_lost_records_is_told() -> None:
    assert lost_records(Tail(5), start=0, end=5) is None
    assert "begins at offset 3" in str(lost_records(Tail(5), start=3, end=9))
    assert "ends at offset 4" in str(lost_records(Tail(5), start=0, end=4))
