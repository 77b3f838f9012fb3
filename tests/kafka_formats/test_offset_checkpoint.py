"""Offset checkpoints: the text both ways, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData
from kafka_formats.offset_checkpoint import encode, parse
from tests.kafka_formats.damage import SOURCE, damaged, survives

TEXT = b"0\n3\norders 0 1000\norders 1 0\n__consumer_offsets 49 9223372036854775807\n"
OFFSETS = {("orders", 0): 1000, ("orders", 1): 0, ("__consumer_offsets", 49): 2**63 - 1}


def parsed(data: bytes) -> dict[tuple[str, int], int]:
    return parse(data, source=SOURCE)


def test_a_checkpoint_is_read_and_written() -> None:
    assert parsed(TEXT) == OFFSETS
    assert encode(OFFSETS) == TEXT
    assert parsed(b"") == {}
    assert parsed(encode({})) == {}


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"1\n0\n", 0, "version"),
        (b"0\n1\norders 0\n", 4, "3 fields"),
        (b"0\n1\norders -1 0\n", 4, "not a number"),
        (b"0\n1\norders 2147483648 0\n", 4, "not a number"),
        (b"0\n1\norders 0 -7\n", 4, "not a number"),
        (b"0\n2\norders 0 1\norders 0 2\n", 15, "is listed twice"),
        (b"0\n2\norders 0 1\n", 2, "2 entries are announced and 1"),
        (b"0\n1\norders 0 1", 14, "no end"),
    ],
)
def test_malformed_text_is_corrupt_data_at_its_line(
    data: bytes, position: int, message: str
) -> None:
    with pytest.raises(CorruptData, match=message) as caught:
        parsed(data)
    assert caught.value.position == position


topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.tuples(topics, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=5
    )
)
def test_what_is_written_is_read(offsets: dict[tuple[str, int], int]) -> None:
    assert parsed(encode(offsets)) == offsets


@settings(max_examples=100, deadline=None)
@given(damaged(TEXT))
def test_damage_is_corrupt_data_or_other_offsets(data: bytes) -> None:
    survives(parsed, data)
