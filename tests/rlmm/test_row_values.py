"""Values of rows that no encoder wrote are corrupt data, never another error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from rlmm import row_values as values
from rlmm.partition_state import Restart, TopicPolicy, Totals
from rlmm.row_values import Covered, Interval

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
    "policy": (
        values.encode_policy(TopicPolicy(1, 2, topic_id=Uuid(b"orders-once-more"))),
        values.decode_policy,
    ),
    "policy that follows": (
        values.encode_policy(TopicPolicy(1, 2, follow_delete_records=True)),
        values.decode_policy,
    ),
    "restart": (values.encode_restart(Restart(1, 2)), values.decode_restart),
    "feature level": (values.encode_feature_level(1, 2), values.decode_feature_level),
}


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
