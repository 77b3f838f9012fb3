"""Control record keys and end markers."""

from __future__ import annotations

import pytest

from kafka_formats.control_record import (
    ControlType,
    control_key,
    parse_control_key,
)
from kafka_formats.errors import CorruptData, InvalidRequest
from tests.kafka_formats.transaction_markers import end_transaction_value


def test_keys_have_kafkas_form() -> None:
    assert control_key(ControlType.ABORT) == bytes.fromhex("00000000")
    assert control_key(ControlType.COMMIT) == bytes.fromhex("00000001")
    assert control_key(1007, version=2) == bytes.fromhex("000203ef")
    assert end_transaction_value(9) == bytes.fromhex("000000000009")


@pytest.mark.parametrize("type_", [0, 1, 6, 1000, -1, 32_767])
def test_any_type_comes_back_from_its_key(type_: int) -> None:
    assert parse_control_key(control_key(type_) + b"newer", source="f", position=0) == type_


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_missing_key_is_corrupt_data(key: bytes | None) -> None:
    with pytest.raises(CorruptData, match="f at byte 12"):
        parse_control_key(key, source="f", position=12)


def test_a_type_that_does_not_fit_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest):
        control_key(40_000)
