"""Custom metadata: small, versioned, self-checking."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from rlm.format.custom_metadata import CUSTOM_METADATA_BYTES_MAX, CustomMetadata, check_store_name

LENGTHS = st.integers(0, 2**63 - 1)
CRCS = st.integers(0, 2**32 - 1)
NAMES = st.from_regex(r"[a-z0-9_-]{1,40}", fullmatch=True)
SAMPLE = CustomMetadata("main", 1, 2, 3, 4, 5, 6)


@settings(max_examples=100, deadline=None)
@given(NAMES, LENGTHS, CRCS, LENGTHS, CRCS, LENGTHS, CRCS)
def test_it_is_read_back_and_stays_below_the_brokers_limit(
    name: str, a: int, b: int, c: int, d: int, e: int, f: int
) -> None:
    metadata = CustomMetadata(name, a, b, c, d, e, f)
    data = metadata.encode()
    assert len(data) < CUSTOM_METADATA_BYTES_MAX
    assert CustomMetadata.decode(data) == metadata


def test_the_bytes_are_pinned() -> None:
    assert SAMPLE.encode().hex() == (
        "534c01046d61696e"
        "000000000000000100000002"
        "000000000000000300000004"
        "000000000000000500000006" + f"{crc32c(SAMPLE.encode()[:-4]):08x}"
    )


def test_any_flipped_bit_is_found() -> None:
    data = SAMPLE.encode()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptData):
                CustomMetadata.decode(bytes(damaged))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120))
def test_other_bytes_are_corrupt_data_and_nothing_else(data: bytes) -> None:
    with pytest.raises(CorruptData):
        CustomMetadata.decode(data)


def resealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "big")


def test_a_negative_length_is_refused_even_with_a_right_checksum() -> None:
    body = bytearray(SAMPLE.encode()[:-4])
    body[8] = 0x80
    with pytest.raises(CorruptData, match="negative"):
        CustomMetadata.decode(resealed(bytes(body)))


def test_a_name_that_is_no_text_is_refused_even_with_a_right_checksum() -> None:
    body = SAMPLE.encode()[:-4].replace(b"main", b"ma\xffn")
    with pytest.raises(CorruptData, match="UTF-8"):
        CustomMetadata.decode(resealed(body))


def test_a_later_version_says_that_this_node_is_too_old() -> None:
    with pytest.raises(CorruptData, match="too old"):
        CustomMetadata.decode(b"SL\x02\x04main")


@pytest.mark.parametrize("name", ["", "x" * 41, "é" * 21, "a\nb"])
def test_a_store_name_must_fit(name: str) -> None:
    with pytest.raises(InvalidRequest, match="store"):
        check_store_name(name)


def test_a_name_that_cannot_be_shown_is_refused_even_with_a_right_checksum() -> None:
    body = SAMPLE.encode()[:-4].replace(b"main", b"ma\nn")
    with pytest.raises(CorruptData, match="not printable"):
        CustomMetadata.decode(resealed(body))
