"""What every backend refuses alike; the conformance suite shows that they ask here."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from rsm_backends.arguments import (
    check_combined_crc32c,
    check_crc32c,
    check_key,
    check_prefix,
    shown,
)
from rsm_backends.store import UploadedPart


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_a_key_that_passes_is_safe_as_a_path_and_in_xml(key: str) -> None:
    try:
        check_key(key)
    except InvalidRequest:
        return
    assert 0 < len(key.encode()) <= 1024
    assert not {"", ".", ".."} & set(key.split("/"))
    assert "\0" not in key
    assert "\n" not in key


def test_the_longest_key_passes_and_one_byte_more_does_not() -> None:
    check_key("k" * 1024)
    with pytest.raises(InvalidRequest, match="1025 bytes are too long, at most 1024"):
        check_key("k" * 1025)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a//", "/", "..", "été"])
def test_a_prefix_may_end_anywhere(prefix: str) -> None:
    check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["\0", "\x7f", "a\ud800", "\uffff", "p" * 1025])
def test_a_prefix_that_no_key_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_prefix(prefix)
    assert caught.value.field == "prefix"


def test_a_hostile_key_is_shown_escaped_and_cut() -> None:
    text = shown("\x1b[31m\n" + "x" * 500)
    assert text.isprintable()
    assert text.isascii()
    assert len(text) < 230


def test_checksums_say_what_was_expected_and_found() -> None:
    check_crc32c(b"data", crc32c(b"data"), source="k")
    with pytest.raises(CorruptData, match=r"k at byte 0: .* sender computed 00000001"):
        check_crc32c(b"data", 1, source="k")
    parts = [UploadedPart(n, 2, crc32c(piece), "") for n, piece in enumerate((b"da", b"ta"), 1)]
    check_combined_crc32c(parts, crc32c(b"data"), source="k")
    with pytest.raises(CorruptData):
        check_combined_crc32c(parts[::-1], crc32c(b"data"), source="k")
