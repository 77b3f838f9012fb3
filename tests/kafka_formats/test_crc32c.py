"""CRC-32C: the standard's check value, pieces, and combination without the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c, crc32c_combine


def test_the_check_value_of_the_standard_comes_out() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_every_kind_of_buffer_gives_the_same_checksum() -> None:
    data = bytes(range(256)) * 300
    assert crc32c(bytearray(data)) == crc32c(memoryview(data)) == crc32c(data)
    assert crc32c(memoryview(data)[7:5000]) == crc32c(data[7:5000])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_checksum_continues_and_combines(first: bytes, second: bytes) -> None:
    whole = crc32c(first + second)
    assert crc32c(second, crc32c(first)) == whole
    assert crc32c_combine(crc32c(first), crc32c(second), len(second)) == whole


@pytest.mark.parametrize("size", [0, 1, 2, 255, 4096, 65_537, (1 << 20) + 3])
def test_combination_holds_for_long_second_parts(size: int) -> None:
    first, second = b"head of the object", bytes(range(251)) * (size // 251 + 1)
    second = second[:size]
    assert crc32c_combine(crc32c(first), crc32c(second), size) == crc32c(first + second)


def test_combination_of_sizes_no_memory_holds_is_associative() -> None:
    tebibyte = 1 << 40
    one_step = crc32c_combine(0x12345678, 0, tebibyte + 5)
    two_steps = crc32c_combine(crc32c_combine(0x12345678, 0, tebibyte), 0, 5)
    assert one_step == two_steps


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        crc32c_combine(1, 2, -1)
