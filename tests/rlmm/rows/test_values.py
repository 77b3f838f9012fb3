"""Values of rows that no encoder wrote are corrupt data, never another error."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from rlmm.partition_state import Restart, TopicPolicy, Totals
from rlmm.rows import values
from rlmm.rows.values import Covered, Interval

SEGMENT = Uuid(bytes(range(16)))
ROWS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "coverage": (
        values.encode_covered(Covered(1, 2, 3, 4, SEGMENT)),
        lambda value: values.decode_covered(1, value),
    ),
    "interval": (
        values.encode_interval(Interval(1, 2, 3, SEGMENT, True)),
        lambda value: values.decode_interval(1, SEGMENT, value),
    ),
    "offset": (values.encode_offset(7), values.decode_offset),
    "totals": (values.encode_totals(Totals()), values.decode_totals),
    "restart": (values.encode_restart(Restart(1, 2)), values.decode_restart),
    "feature level": (values.encode_feature_level(1, 2), values.decode_feature_level),
}


def test_the_row_of_a_policy_that_follows_nothing_is_the_one_of_older_programs() -> None:
    """The same bytes, so that nodes that wrote it then and now have one digest."""
    policy = TopicPolicy(1, 2, True, False, 3, Uuid(b"orders-once-more"))
    older = struct.pack(">qq??q16s", 1, 2, True, False, 3, b"orders-once-more")
    assert values.encode_policy(policy) == older
    assert values.decode_policy(older) == policy
    assert values.decode_policy(older + b"\0") == policy
    follows = replace(policy, follow_delete_records=True)
    assert values.encode_policy(follows) == older + b"\1"
    assert values.decode_policy(older + b"\1") == follows


@pytest.mark.parametrize("wrong", [b"", bytes(41), bytes(42) + b"\2", bytes(44)], ids=len)
def test_a_policy_row_that_no_program_wrote_is_corrupt_data(wrong: bytes) -> None:
    with pytest.raises(CorruptData, match="topic policy"):
        values.decode_policy(wrong)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_another_length_is_corrupt_data(name: str) -> None:
    good, decode = ROWS[name]
    decode(good)
    for wrong in (b"", good[:-1], good + b"\0"):
        with pytest.raises(CorruptData):
            decode(wrong)


def test_a_lineage_has_whole_entries() -> None:
    for wrong in (b"\0", bytes(13)):
        with pytest.raises(CorruptData, match="lineage row"):
            values.decode_lineage(wrong)


def test_a_lost_range_has_an_end_and_a_reason_that_is_text() -> None:
    assert values.decode_lost_range(values.encode_lost_range(7, "why")) == (7, "why")
    for wrong in (b"", bytes(7), bytes(8) + b"\xff"):
        with pytest.raises(CorruptData):
            values.decode_lost_range(wrong)
