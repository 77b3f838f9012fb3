"""Times and sizes: what people write is read exactly, or refused with how to write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from strandline.cli.quantities import (
    QUANTITY_MAX,
    parse_size_bytes,
    parse_time_ms,
    size_text,
    time_text,
)

FIELD = "--retention"
COUNTS = st.none() | st.integers(0, QUANTITY_MAX)


@given(COUNTS)
def test_what_is_shown_is_read_as_the_same(count: int | None) -> None:
    assert parse_time_ms(time_text(count), field=FIELD) == count
    assert parse_size_bytes(size_text(count), field=FIELD) == count


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [("7d", 604_800_000), ("36h", 129_600_000), ("2w", 1_209_600_000), ("0s", 0)],
)
def test_times(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, field=FIELD) == time_ms


def test_a_time_is_shown_in_its_largest_whole_unit() -> None:
    assert [time_text(each) for each in (604_800_000, 5_400_000, 1_500, 0)] == [
        "7d", "90m", "1500ms", "0ms",
    ]  # fmt: skip
    assert [size_text(each) for each in (100 * 2**30, 1_536, 0)] == ["100GiB", "1536B", "0B"]


@pytest.mark.parametrize(
    "text", ["-1", "-7d", "7", "", "7 d", "1.5d", "7D", "7days", "9" * 19 + "w"]
)
def test_a_time_that_could_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="`unlimited`"):
        parse_time_ms(text, field=FIELD)


@pytest.mark.parametrize("text", ["-1", "100", "100GB", "100G", "1e3B", "x", "9999999PiB"])
def test_a_size_that_could_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="`unlimited`"):
        parse_size_bytes(text, field=FIELD)
