"""Partition rows are written and read as field by field, and the same damage is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlmm.partition_state import Claim, Mode
from rlmm.rows import partitions as row_partitions
from rlmm.rows.partitions import PartitionRow, decode_partition, encode_partition
from rlmm.segment import Incarnation, PartitionDeleteState
from tests.rlmm.rows.plain_partition_rows import decode_plainly, encode_plainly

T = TypeVar("T")

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
claims = st.builds(
    Claim, int64s, int32s, st.builds(Incarnation, int32s, uuids, int64s), int64s, int64s
)
rows = st.builds(
    PartitionRow,
    topic=st.text(max_size=140) | st.text("ab", min_size=120, max_size=600),
    mode=st.sampled_from(Mode),
    mode_offset=int64s,
    claim=claims | st.none(),
    claim_voided=st.booleans(),
    reset_stands=st.booleans(),
    log_start_offset=int64s,
    local_log_start_offset=int64s,
    delete_state=st.sampled_from(PartitionDeleteState) | st.none(),
    delete_offset=int64s,
    delete_marked_at_ms=int64s,
    copy_started=int64s,
    copy_finished=int64s,
    delete_started=int64s,
    size_bytes=int64s,
    unknown_tags=st.sampled_from([(), ((7, b"x"), (300, b""))]),
    delete_grace_ms=st.just(-1) | st.integers(0, 2**63 - 1),
    delete_counts_from_ms=st.just(-1) | st.integers(0, 2**63 - 1),
    reset_cut_at=st.just(-1) | st.integers(0, 2**63 - 1),
)
CLAIM = Claim(5, 3, Incarnation(1, Uuid(bytes(range(16))), 2), 4, 1_700_000_000_000)
CLAIMED = PartitionRow("orders", Mode.SIDECAR, -1, CLAIM, log_start_offset=7, copy_started=2)


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    row_partitions._remembered.clear()
    yield
    row_partitions._remembered.clear()


def outcome(code: Callable[[T], object], value: T) -> object:
    try:
        return code(value)
    except StrandlineError as error:
        return type(error)


@given(rows)
def test_both_ways_write_the_same_bytes_and_read_the_same_row(row: PartitionRow) -> None:
    row_partitions._remembered.clear()
    value = encode_partition(row)
    assert value == encode_plainly(row)
    assert decode_partition(value) == row
    row_partitions._remembered.clear()
    assert decode_partition(value) == decode_plainly(value) == row
    assert decode_partition(bytes(bytearray(value))) == row, "remembered by its bytes"


def test_a_row_that_was_read_is_not_decoded_again() -> None:
    value = encode_partition(CLAIMED)
    assert decode_partition(value) is CLAIMED
    row_partitions._remembered.clear()
    assert decode_partition(value) is decode_partition(bytes(bytearray(value)))


@pytest.mark.parametrize(
    "row", [CLAIMED, CLAIMED._replace(claim=None), CLAIMED._replace(topic="t" * 249)]
)
def test_every_damaged_byte_means_the_same_both_ways(row: PartitionRow) -> None:
    whole = encode_plainly(row)
    for at in range(len(whole)):
        for new in {0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, whole[at] ^ 1}:
            damaged = whole[:at] + bytes((new,)) + whole[at + 1 :]
            assert outcome(decode_partition, damaged) == outcome(decode_plainly, damaged)
    for cut in range(len(whole)):
        with pytest.raises(CorruptData):
            decode_partition(whole[:cut])
    with pytest.raises(CorruptData):
        decode_partition(whole + b"\0")


@pytest.mark.parametrize(
    "row",
    [
        CLAIMED._replace(topic="\ud800"),
        CLAIMED._replace(size_bytes=2**63),
        CLAIMED._replace(claim=None, log_start_offset=2**63),
    ],
)
def test_what_does_not_fit_is_refused_as_field_by_field(row: PartitionRow) -> None:
    assert outcome(encode_partition, row) == outcome(encode_plainly, row)


def test_only_so_many_rows_are_remembered() -> None:
    for number in range(2 * row_partitions.REMEMBERED_MAX):
        encode_partition(CLAIMED._replace(copy_started=number))
        assert len(row_partitions._remembered) <= row_partitions.REMEMBERED_MAX


def test_counters_are_added_to() -> None:
    assert CLAIMED.counted(1, 2, -3, 4) == CLAIMED._replace(
        copy_started=3, copy_finished=2, delete_started=-3, size_bytes=4
    )
