"""Kafka's Uuid: text form, canonical only."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid


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


@pytest.mark.parametrize("raw", [b"", bytes(15), bytes(17)])
def test_an_id_has_16_bytes(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        Uuid(raw)
