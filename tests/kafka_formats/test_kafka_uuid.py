"""Kafka's Uuid: text form, canonical only."""

from __future__ import annotations

import base64
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def test_the_golden_ids_have_kafkas_text() -> None:
    assert str(Uuid(bytes.fromhex("112233445566778899aabbccddeeff00"))) == "ESIzRFVmd4iZqrvM3e7_AA"
    assert Uuid.parse("AQIDBAUGBwgJCgsMDQ4PEA").hex() == "0102030405060708090a0b0c0d0e0f10"


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=16, max_size=16))
def test_every_id_comes_back_from_its_text_and_from_another_process(raw: bytes) -> None:
    assert Uuid.parse(str(Uuid(raw))) == raw
    assert pickle.loads(pickle.dumps(Uuid(raw))) == raw


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=24) | st.from_regex(r"[A-Za-z0-9_-]{22}", fullmatch=True))
def test_any_text_is_an_id_in_its_canonical_form_or_refused(text: str) -> None:
    try:
        found = Uuid.parse(text)
    except InvalidRequest:
        return
    assert str(found) == text


@settings(max_examples=200, deadline=None)
@given(st.text("AQgwBz-_09+/=\n", min_size=20, max_size=23) | st.binary(max_size=17).map(_text))
def test_a_text_is_an_id_if_it_is_what_base64_makes_of_one(text: str) -> None:
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) == 16 and _text(raw) == text:
        assert Uuid.parse(text) == raw
    else:
        with pytest.raises(InvalidRequest):
            Uuid.parse(text)


@pytest.mark.parametrize("raw", [b"", bytes(15), bytes(17)])
def test_an_id_has_16_bytes(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Uuid(raw)
