"""`.txnindex`: golden bytes, collection against a plain rule, damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.transaction_index import AbortedTransaction, collect, encode, parse
from tests.kafka_formats.damage import SOURCE, damaged, survives

GOLDEN = bytes.fromhex(
    "0000000000000000004d00000000000003e800000000000003ea00000000000003eb",
)
GOLDEN_ENTRY = AbortedTransaction(77, 1000, 1002, 1003)


def parsed(data: bytes) -> tuple[AbortedTransaction, ...]:
    return parse(data, source=SOURCE)


def test_the_golden_index_is_read_and_written() -> None:
    assert parsed(GOLDEN) == (GOLDEN_ENTRY,)
    assert encode([GOLDEN_ENTRY]) == GOLDEN
    assert parsed(b"") == ()


INTERLEAVED = (
    AbortedTransaction(1, 0, 10, 2),  # producer 2 is still open from offset 2 on
    AbortedTransaction(2, 2, 20, 21),
    AbortedTransaction(1, 30, 40, 41),
)


@pytest.mark.parametrize(
    ("fetch", "upper", "expected", "complete"),
    [
        (0, 1, INTERLEAVED[:1], True),
        (0, 10, INTERLEAVED[:2], True),
        (11, 21, INTERLEAVED[1:2], True),
        (21, 25, (), True),
        (0, 41, INTERLEAVED, True),
        (0, 42, INTERLEAVED, False),
        (50, 60, (), False),
    ],
)
def test_collection_stops_as_soon_as_no_later_marker_can_matter(
    fetch: int, upper: int, expected: tuple[AbortedTransaction, ...], complete: bool
) -> None:
    assert collect(INTERLEAVED, fetch, upper) == (expected, complete)


def test_an_empty_index_is_never_complete() -> None:
    assert collect((), 0, 10) == ((), False)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=10))
def test_what_is_written_is_read(steps: list[tuple[int, int]]) -> None:
    marker = 0
    entries: list[AbortedTransaction] = []
    for producer_id, further in steps:
        marker += further
        entries.append(AbortedTransaction(producer_id, marker - 1, marker, marker + 1))
    assert parsed(encode(entries)) == tuple(entries)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (AbortedTransaction(-1, 0, 1, 2), "impossible"),
        (AbortedTransaction(1, 6, 5, 6), "impossible"),
        (AbortedTransaction(1, -1, -1, 6), "impossible"),
        (AbortedTransaction(1, -1, 5, 6), "impossible"),
        (AbortedTransaction(1, 4, 5, -1), "impossible"),
        (AbortedTransaction(0, 0, 0, 0), "impossible"),
    ],
)
def test_impossible_entries_are_corrupt_data(entry: AbortedTransaction, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        parsed(encode([entry]))


def test_transactions_without_records_that_brokers_before_2_8_listed_are_left_out() -> None:
    """Their marker is all there is of them (KAFKA-10702)."""
    listed = [
        AbortedTransaction(7, 0, 0, 1),
        AbortedTransaction(7, 3, 3, 4),
        *INTERLEAVED[:1],
        AbortedTransaction(7, 11, 11, 2),
        *INTERLEAVED[1:2],
    ]
    assert parsed(encode(listed)) == INTERLEAVED[:2]
    with pytest.raises(CorruptData, match="after a marker at 11") as caught:
        parsed(encode([*listed[:4], AbortedTransaction(8, 11, 11, 12)]))
    assert caught.value.position == 4 * 34


def test_markers_out_of_order_and_unknown_versions_are_corrupt_data() -> None:
    with pytest.raises(CorruptData, match="after a marker at 1002") as caught:
        parsed(GOLDEN + GOLDEN)
    assert caught.value.position == 34
    with pytest.raises(CorruptData, match="version 1"):
        parsed(b"\x00\x01" + GOLDEN[2:])


@pytest.mark.parametrize("size", range(1, 34))
def test_half_an_entry_is_corrupt_data(size: int) -> None:
    with pytest.raises(CorruptData):
        parsed(GOLDEN[:size])


@settings(max_examples=100, deadline=None)
@given(damaged(encode(INTERLEAVED)))
def test_damage_is_corrupt_data_or_other_entries(data: bytes) -> None:
    survives(parsed, data)


def test_entries_that_do_not_fit_are_invalid_requests() -> None:
    with pytest.raises(InvalidRequest):
        encode([AbortedTransaction(2**63, 0, 1, 2)])
