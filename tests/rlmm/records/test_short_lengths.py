"""Short lengths are the uvarints of Kafka's compact fields."""

from __future__ import annotations

import pytest

from kafka_formats.primitives import Writer
from rlmm.records.short_lengths import LENGTH_MAX, NOT_SHORT, SHORT_LENGTHS, read_short_length


def uvarint(number: int) -> bytes:
    writer = Writer()
    writer.uvarint(number)
    return writer.done()


def test_every_length_is_written_and_read_as_a_uvarint() -> None:
    for length, written in enumerate(SHORT_LENGTHS):
        assert written == uvarint(length)
        assert read_short_length(b"x" + written + b"y", 1) == (length, 1 + len(written))
    assert len(SHORT_LENGTHS) == LENGTH_MAX + 1


@pytest.mark.parametrize("written", [uvarint(LENGTH_MAX + 1), uvarint(2**20), b"\x85\x00"])
def test_what_is_longer_or_written_otherwise_is_left_to_the_general_way(written: bytes) -> None:
    assert read_short_length(written, 0)[0] == NOT_SHORT


@pytest.mark.parametrize("written", [b"", b"\x80"])
def test_a_length_that_is_cut_off_is_an_index_error(written: bytes) -> None:
    with pytest.raises(IndexError):
        read_short_length(written, 0)
