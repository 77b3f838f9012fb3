"""Zig-zag varints: known forms, round trips, and forms that are too long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats import varints


def written(value: int) -> bytes:
    out = bytearray()
    varints.write(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_numbers_have_kafkas_form(value: int, form: str) -> None:
    assert written(value).hex() == form
    assert varints.read_varlong(bytes.fromhex(form), 0) == (value, len(form) // 2)


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_numbers_come_back_from_between_other_bytes(value: int, head: bytes, tail: bytes) -> None:
    data = head + written(value) + tail
    assert varints.read_varint(data, len(head)) == (value, len(data) - len(tail))
    assert varints.read_varlong(data, len(head)) == (value, len(data) - len(tail))


@pytest.mark.parametrize("data", ["", "80", "ffffffff", "ffffffff1f", "ffffffffff01", "80" * 20])
def test_a_malformed_varint_is_refused(data: str) -> None:
    with pytest.raises(varints.MalformedError):
        varints.read_varint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["", "ff" * 9, "ff" * 9 + "03", "80" * 20])
def test_a_malformed_varlong_is_refused(data: str) -> None:
    with pytest.raises(varints.MalformedError):
        varints.read_varlong(bytes.fromhex(data), 0)


def test_none_and_empty_bytes_differ() -> None:
    out = bytearray()
    varints.write_bytes(out, None)
    varints.write_bytes(out, b"")
    varints.write_bytes(out, b"ab")
    data = bytes(out)
    assert data.hex() == "0100046162"
    assert varints.read_bytes(data, 0, 5) == (None, 1)
    assert varints.read_bytes(data, 1, 5) == (b"", 2)
    assert varints.read_bytes(data, 2, 5) == (b"ab", 5)


def test_a_field_must_end_with_its_record() -> None:
    with pytest.raises(varints.MalformedError, match="passes the end"):
        varints.read_bytes(b"\x04ab", 0, 2)
    with pytest.raises(varints.MalformedError, match="length -2"):
        varints.read_bytes(b"\x03", 0, 1)
