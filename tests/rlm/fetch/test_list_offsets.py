"""ListOffsets' specials; expected values of Kafka's own integration test (KIP-405, KIP-1005)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import InvalidRequest, NotFound
from rlm.fetch.list_offsets import LocalOffsets, OffsetSpec, answer_special, parse_spec
from rlmm.partition_state import PartitionState

# Two records a segment; 0-1 in epoch 0, segment 2-3 spans both epochs, log end 6.
from tests.rlm.planner_facts import PARTITION, epochs, state

LINEAGE = epochs((0, 0), (1, 3))
TIERED = state(lineage=LINEAGE, log_start=0, highest=(3, 1))
LOCAL = LocalOffsets(local_log_start_offset=4, latest=6, checkpoint=LINEAGE)


def ask(
    spec: OffsetSpec, known: PartitionState | None = TIERED, local: LocalOffsets | None = LOCAL
) -> tuple[int, int]:
    answer = answer_special(spec, PARTITION, known, local, 77)
    assert answer.metadata_offset == 77
    assert answer.timestamp_ms == -1
    return answer.offset, answer.leader_epoch


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OffsetSpec.EARLIEST, (0, 0)),
        (OffsetSpec.EARLIEST_LOCAL, (4, 1)),
        (OffsetSpec.LATEST_TIERED, (3, 1)),
        (OffsetSpec.LATEST, (6, 1)),
        (OffsetSpec.EARLIEST_PENDING_UPLOAD, (4, 1)),
    ],
)
def test_a_tiered_partition(spec: OffsetSpec, expected: tuple[int, int]) -> None:
    assert ask(spec) == expected


def test_after_records_up_to_3_were_deleted() -> None:
    cut = replace(TIERED, log_start_offset=3)
    assert ask(OffsetSpec.EARLIEST, cut) == (3, 1)
    assert ask(OffsetSpec.EARLIEST_LOCAL, cut) == (4, 1)


def test_after_records_up_to_4_were_deleted_the_latest_tiered_epoch_is_unknown() -> None:
    cut = replace(TIERED, log_start_offset=4)
    assert ask(OffsetSpec.EARLIEST, cut) == (4, 1)
    assert ask(OffsetSpec.LATEST_TIERED, cut) == (3, -1)


def test_a_partition_that_is_not_tiered() -> None:
    assert ask(OffsetSpec.LATEST_TIERED, None) == (-1, -1)
    assert ask(OffsetSpec.EARLIEST_PENDING_UPLOAD, None) == (-1, -1)
    assert ask(OffsetSpec.EARLIEST, None) == ask(OffsetSpec.EARLIEST_LOCAL, None) == (4, 1)


def test_a_partition_with_neither_a_copy_nor_a_log_start() -> None:
    fresh = state(log_start=-1, next_offset=-1)
    assert ask(OffsetSpec.EARLIEST, fresh) == (4, 1)
    assert ask(OffsetSpec.EARLIEST_PENDING_UPLOAD, fresh) == (-1, -1)


def test_without_a_local_replica_only_the_tier_can_answer() -> None:
    assert ask(OffsetSpec.EARLIEST, local=None) == (0, 0)
    assert ask(OffsetSpec.EARLIEST_PENDING_UPLOAD, local=None) == (4, 1)
    for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST_LOCAL):
        with pytest.raises(NotFound, match="replica"):
            ask(spec, local=None)


def test_a_partition_that_nobody_knows_is_not_found() -> None:
    with pytest.raises(NotFound):
        ask(OffsetSpec.EARLIEST, None, None)


def test_max_timestamp_is_no_look_up() -> None:
    with pytest.raises(InvalidRequest):
        ask(OffsetSpec.MAX_TIMESTAMP)


def test_numbers_become_specials_times_or_errors() -> None:
    assert parse_spec(0) is None
    assert parse_spec(-4) is OffsetSpec.EARLIEST_LOCAL
    for number in (-7, -(2**70)):
        with pytest.raises(InvalidRequest) as caught:
            parse_spec(number)
        assert caught.value.field == "timestamp"
