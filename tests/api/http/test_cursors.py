"""Cursors: what went in comes out; anything else is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.http.cursors import CURSOR_CHARACTERS_MAX, decode_cursor, encode_cursor
from kafka_formats.errors import InvalidRequest

FILTERS = {"epoch": 3, "state": None}
KEY = (17, "abc")


@given(st.integers(0, 2**63 - 1), st.text(alphabet="abcXYZ019._-", max_size=60))
@settings(max_examples=100, deadline=None)
def test_a_cursor_gives_back_its_key(number: int, text: str) -> None:
    cursor = encode_cursor("segments", FILTERS, (number, text))
    assert decode_cursor("segments", FILTERS, cursor, (int, str)) == (number, text)


def test_any_changed_character_is_refused() -> None:
    cursor = encode_cursor("segments", FILTERS, KEY)
    for place in range(len(cursor)):
        changed = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        decoded = base64.urlsafe_b64decode(changed + "=" * (-len(changed) % 4))
        if decoded == base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)):
            continue  # only unused bits of the last character differ
        with pytest.raises(InvalidRequest):
            decode_cursor("segments", FILTERS, changed, (int, str))


@pytest.mark.parametrize(
    ("listing", "filters", "shape"),
    [
        ("topics", FILTERS, (int, str)),
        ("segments", {"epoch": 4, "state": None}, (int, str)),
        ("segments", FILTERS, (str,)),
        ("segments", FILTERS, (int,)),
    ],
)
def test_a_cursor_of_another_list_or_filter_is_refused(
    listing: str, filters: dict[str, object], shape: tuple[type, ...]
) -> None:
    cursor = encode_cursor("segments", FILTERS, KEY)
    with pytest.raises(InvalidRequest) as caught:
        decode_cursor(listing, filters, cursor, shape)
    assert caught.value.field == "cursor"


@pytest.mark.parametrize(
    "cursor",
    ["", "A", "!!!!", "é" * 20, "A" * (CURSOR_CHARACTERS_MAX + 1), "\x00", "AAAA" * 10, "=" * 8],
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_cursor("segments", FILTERS, cursor, (int, str))


@given(st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_no_text_makes_anything_but_an_invalid_request(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_cursor("segments", FILTERS, text, (int, str))
