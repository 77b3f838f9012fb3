"""`.timeindex`: golden bytes, look-ups against a plain scan, zero tails, damage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.time_index import TimeIndex, encode
from tests.kafka_formats.damage import SOURCE, damaged, survives

GOLDEN = bytes.fromhex("0000018bcfe5680500000001")
GOLDEN_ENTRIES = ((1700000000005, 1001),)


def parsed(data: bytes, base_offset: int = 1000) -> TimeIndex:
    return TimeIndex.parse(data, base_offset=base_offset, source=SOURCE)


def test_the_golden_index_is_read_and_written() -> None:
    assert parsed(GOLDEN).entries == GOLDEN_ENTRIES
    assert parsed(GOLDEN).last == GOLDEN_ENTRIES[0]
    assert encode(GOLDEN_ENTRIES, 1000) == GOLDEN


def test_look_ups_before_the_first_entry_give_the_base() -> None:
    assert parsed(GOLDEN).lookup(1700000000004) == (-1, 1000)
    assert parsed(GOLDEN).lookup(1700000000005) == (1700000000005, 1001)
    assert parsed(b"").lookup(2**62) == (-1, 1000)
    assert parsed(b"").last == (-1, 1000)


@pytest.mark.parametrize("tail", [12, 24, 12 * 100_000])
def test_a_preallocated_tail_is_not_read(tail: int) -> None:
    assert parsed(GOLDEN + bytes(tail)).entries == GOLDEN_ENTRIES


def test_the_time_zero_at_the_base_is_a_real_entry_unless_a_tail_of_zeros_follows() -> None:
    zero = bytes(12)
    assert parsed(zero).entries == ((0, 1000),)
    assert parsed(zero + GOLDEN).entries == ((0, 1000), *GOLDEN_ENTRIES)
    assert parsed(zero + GOLDEN + zero).entries == ((0, 1000), *GOLDEN_ENTRIES)
    assert parsed(zero * 2).entries == ()
    assert parsed(zero * 100).entries == ()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=20), st.integers(-5, 200))
def test_look_ups_equal_a_plain_scan(steps: list[tuple[int, int]], timestamp_ms: int) -> None:
    timestamp, offset = -1, 7000
    entries: list[tuple[int, int]] = []
    for later, further in steps:
        timestamp += later
        offset += further
        entries.append((timestamp, offset))
    index = parsed(encode(entries, 7000), 7000)
    assert list(index.entries) == entries
    at_or_before = [entry for entry in entries if entry[0] <= timestamp_ms]
    assert index.lookup(timestamp_ms) == (at_or_before[-1] if at_or_before else (-1, 7000))


@pytest.mark.parametrize(
    "entries", [[(5, 1), (5, 2)], [(5, 2), (6, 1)], [(-1, 1)], [(5, -1)], [(9, 1), (8, 1)]]
)
def test_entries_that_do_not_ascend_are_corrupt_data(entries: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    with pytest.raises(CorruptData, match="does not ascend") as caught:
        parsed(data)
    assert caught.value.position == len(data) - 12


@settings(max_examples=100, deadline=None)
@given(damaged(GOLDEN * 1 + bytes.fromhex("0000018bcfe5680600000007")))
def test_damage_is_corrupt_data_or_other_entries(data: bytes) -> None:
    survives(parsed, data)


def test_entries_that_do_not_fit_are_invalid_requests() -> None:
    with pytest.raises(InvalidRequest):
        encode([(2**63, 1)], 0)
