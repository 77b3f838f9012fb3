"""`.snapshot`: golden bytes, round trips, and damage, which the CRC always notices."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.producer_snapshot import ProducerState, encode, first_unstable_offset, parse
from tests.kafka_formats.damage import SOURCE, damaged, survives

GOLDEN = bytes.fromhex(
    "0001471b887d00000001000000000000004d00030000000600000000000003e9000000010000018bcfe56805"
    "0000000900000000000003e8"
)
GOLDEN_EMPTY = bytes.fromhex("000148674bc700000000")
GOLDEN_STATE = ProducerState(77, 3, 6, 1001, 1, 1700000000005, 9, 1000)


def parsed(data: bytes) -> tuple[ProducerState, ...]:
    return parse(data, source=SOURCE)


def test_the_golden_snapshots_are_read_and_written() -> None:
    assert parsed(GOLDEN) == (GOLDEN_STATE,)
    assert encode([GOLDEN_STATE]) == GOLDEN
    assert parsed(GOLDEN_EMPTY) == ()
    assert encode([]) == GOLDEN_EMPTY


int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
states = st.builds(ProducerState, int64, int16, int32, int64, int32, int64, int32, int64)


@settings(max_examples=100, deadline=None)
@given(st.lists(states, max_size=5))
def test_what_is_written_is_read(entries: list[ProducerState]) -> None:
    assert parsed(encode(entries)) == tuple(entries)


@settings(max_examples=100, deadline=None)
@given(damaged(GOLDEN))
def test_any_damage_is_noticed(data: bytes) -> None:
    assert not survives(parsed, data) or data in (GOLDEN, GOLDEN_EMPTY)


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_every_truncation_is_noticed(size: int) -> None:
    assert not survives(parsed, GOLDEN[:size])


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1, -(2**31)])
def test_a_count_that_is_not_there_is_corrupt_data_under_a_right_crc(count: int) -> None:
    checked = count.to_bytes(4, "big", signed=True) + GOLDEN[10:]
    with pytest.raises(CorruptData, match=f"{count} producers are announced"):
        parsed(b"\x00\x01" + crc32c(checked).to_bytes(4, "big") + checked)


def test_an_unknown_version_is_corrupt_data() -> None:
    with pytest.raises(CorruptData, match="version 2"):
        parsed(b"\x00\x02" + GOLDEN[2:])


def test_the_first_unstable_offset_is_that_of_the_earliest_open_transaction() -> None:
    closed = replace(GOLDEN_STATE, current_txn_first_offset=-1)
    later = replace(GOLDEN_STATE, producer_id=78, current_txn_first_offset=2000)
    assert first_unstable_offset([]) is None
    assert first_unstable_offset([closed]) is None
    assert first_unstable_offset([closed, later, GOLDEN_STATE]) == 1000
    assert first_unstable_offset([replace(later, current_txn_first_offset=0), later]) == 0


def test_entries_that_do_not_fit_are_invalid_requests() -> None:
    with pytest.raises(InvalidRequest):
        encode([ProducerState(*(2**63 for _ in astuple(GOLDEN_STATE)))])
