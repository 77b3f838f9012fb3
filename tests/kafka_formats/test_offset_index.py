"""`.index`: golden bytes, look-ups against a plain scan, zero tails, damage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.offset_index import OffsetIndex, encode
from tests.kafka_formats.damage import SOURCE, damaged, survives

GOLDEN = bytes.fromhex("00000001000010680000000a00002328")
GOLDEN_ENTRIES = ((1001, 4200), (1010, 9000))


def parsed(data: bytes, base_offset: int = 1000) -> OffsetIndex:
    return OffsetIndex.parse(data, base_offset=base_offset, source=SOURCE)


def test_the_golden_index_is_read_and_written() -> None:
    assert parsed(GOLDEN).entries == GOLDEN_ENTRIES
    assert encode(GOLDEN_ENTRIES, 1000) == GOLDEN


def test_look_ups_give_the_place_to_scan_from() -> None:
    index = parsed(GOLDEN)
    assert [index.lookup(offset) for offset in (0, 1000, 1001, 1009, 1010, 5000)] == [
        0,
        0,
        4200,
        4200,
        9000,
        9000,
    ]


def test_upper_bounds_give_the_first_entry_behind_a_position() -> None:
    index = parsed(GOLDEN)
    assert [index.upper_bound_offset(at) for at in (0, 4200, 4201, 9000, 9001)] == [
        1001,
        1001,
        1010,
        1010,
        None,
    ]


@pytest.mark.parametrize("tail", [0, 8, 800, 10 << 20])
def test_a_preallocated_tail_is_not_read(tail: int) -> None:
    assert parsed(GOLDEN + bytes(tail)).entries == GOLDEN_ENTRIES
    assert parsed(bytes(tail)).entries == ()


@st.composite
def ascending_entries(draw: st.DrawFn) -> list[tuple[int, int]]:
    offset, position = draw(st.integers(-1, 50)), 0
    entries: list[tuple[int, int]] = []
    for step, size in draw(
        st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9000)), max_size=20)
    ):
        offset += step
        position += size
        entries.append((5000 + offset, position))
    return entries


@settings(max_examples=100, deadline=None)
@given(ascending_entries(), st.integers(4990, 5300), st.integers(0, 60_000))
def test_look_ups_equal_a_plain_scan(
    entries: list[tuple[int, int]], offset: int, position: int
) -> None:
    index = parsed(encode(entries, 5000), 5000)
    assert list(index.entries) == entries
    below = [at for entry_offset, at in entries if entry_offset <= offset]
    assert index.lookup(offset) == (below[-1] if below else 0)
    behind = [entry_offset for entry_offset, at in entries if at >= position]
    assert index.upper_bound_offset(position) == (behind[0] if behind else None)


@pytest.mark.parametrize("entries", [[(5, 9), (5, 10)], [(5, 9), (6, 9)], [(-1, 9)], [(1, -1)]])
def test_entries_that_do_not_ascend_are_corrupt_data(entries: list[tuple[int, int]]) -> None:
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    with pytest.raises(CorruptData, match="does not ascend") as caught:
        parsed(data)
    assert caught.value.position == len(data) - 8


def test_half_an_entry_is_corrupt_data() -> None:
    with pytest.raises(CorruptData) as caught:
        parsed(GOLDEN[:-1])
    assert caught.value.position == 8


@settings(max_examples=100, deadline=None)
@given(damaged(GOLDEN))
def test_damage_is_corrupt_data_or_other_entries(data: bytes) -> None:
    survives(parsed, data)


def test_entries_that_do_not_fit_are_invalid_requests() -> None:
    with pytest.raises(InvalidRequest):
        encode([(2**31, 1)], 0)
