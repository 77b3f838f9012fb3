"""Kafka's control records, in the bytes that its own tools read."""

from __future__ import annotations

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_records import (
    Endpoint,
    Voter,
    decode_snapshot_header,
    decode_voters,
    encode_kraft_version,
    encode_leader_change,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_voters,
)

VOTERS = (
    Voter(1, Uuid(b"directory-one..."), (Endpoint("QUORUM", "localhost", 40_000),)),
    Voter(2, Uuid(b"directory-two...")),
)


def test_leader_change_has_kafkas_bytes() -> None:
    assert encode_leader_change(7, (7, 8), (7,)).hex() == (
        "000000000007030000000700000000080002000000070000"
    )


def test_header_footer_and_version_have_kafkas_bytes() -> None:
    assert encode_snapshot_header(258).hex() == "0000000000000000010200"
    assert encode_snapshot_footer().hex() == "000000"
    assert encode_kraft_version().hex() == "0000000100"


def test_a_snapshot_header_is_read_back() -> None:
    assert decode_snapshot_header(encode_snapshot_header(1_700_000_000_000), source="s") == (
        1_700_000_000_000
    )


@pytest.mark.parametrize("voters", [(), VOTERS[:1], VOTERS])
def test_voters_are_read_back_with_their_endpoints(voters: tuple[Voter, ...]) -> None:
    assert decode_voters(encode_voters(voters), source="s") == voters


def test_damaged_voters_are_corrupt_data_and_nothing_else() -> None:
    data = encode_voters(VOTERS)
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            decode_voters(data[:end], source="s")
    with pytest.raises(CorruptData):
        decode_voters(data + b"\x00", source="s")
