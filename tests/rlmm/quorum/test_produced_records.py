"""What a client produces becomes the very proposals it stands for, or is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.compression import Codec
from kafka_formats.control_record import ControlType, control_key
from kafka_formats.errors import InvalidRequest
from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum.framing import NO_OP, frame_produced, proposals_produced
from tests.fuzz import repairs

proposals = st.builds(Proposal, st.none() | st.integers(NO_OP, 2_000), st.binary(max_size=40))


def encoded(given_proposals: list[Proposal]) -> bytes:
    batches = encode_proposals(given_proposals, base_offset=0, epoch=0, timestamp_ms=1)
    return b"".join(batch.data for batch in batches)


def batch(*records: Record, control: bool = False, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch(records, base_offset=0, control=control, codec=codec)


def record(key: bytes | None, value: bytes | None, offset: int = 0) -> Record:
    return Record(offset, 1, key, value)


@given(st.lists(proposals, min_size=1, max_size=8))
def test_produced_records_are_the_proposals_that_were_encoded(sent: list[Proposal]) -> None:
    data = encoded(sent)
    assert list(proposals_produced(data)) == sent
    assert sum(each.record_count for each in frame_produced(data, timestamp_ms=1)) == len(sent)


WHOLE = encoded([Proposal(None, b"value")])
ALSO_NOT_FORWARDED = [
    b"",
    WHOLE[:-1],
    WHOLE + b"\0",
    WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]),
    batch(record(None, b"a"), codec=Codec.GZIP),
    batch(record(None, b"a"), record(None, b"b", offset=2)),
    batch(record(control_key(ControlType.LEADER_CHANGE), b""), control=True),
    batch(record(b"x", b""), control=True),
]
NO_METADATA_RECORDS = [
    batch(record(b"key", b"value")),
    batch(record(None, None)),
    batch(Record(0, 1, None, b"value", (("header", b"h"),))),
    batch(record(control_key(1_000, version=1), b"value"), control=True),
    batch(record(control_key(1_000), None), control=True),
    WHOLE + batch(record(b"key", b"value")),
]


def announcing(count: int, data: bytes) -> bytes:
    """One batch that says that it has so many records, its CRC right."""
    changed = bytearray(data)
    changed[23:27], changed[57:61] = (count - 1).to_bytes(4, signed=True), count.to_bytes(4)
    return repairs.batches(bytes(changed))


def with_another_offset(data: bytes) -> bytes:
    """The second of two records stands at the first one's offset, and nothing else is wrong."""
    changed = bytearray(data)
    second = HEADER_BYTES + 1 + changed[HEADER_BYTES] // 2
    assert changed[second + 3] == 2, "the offset's delta, zigzag"
    changed[second + 3] = 0
    return repairs.batches(bytes(changed))


TWO = encoded([Proposal(None, b"one"), Proposal(None, b"two")])
ALSO_NOT_FORWARDED += [
    announcing(1_000_000, WHOLE),
    announcing(2, WHOLE),
    announcing(1, TWO),
    announcing(0, WHOLE),
    with_another_offset(TWO),
]


@pytest.mark.parametrize("data", ALSO_NOT_FORWARDED)
def test_damage_and_what_only_a_leader_writes_is_refused_from_clients_and_nodes(
    data: bytes,
) -> None:
    with pytest.raises(InvalidRequest):
        proposals_produced(data)
    with pytest.raises(InvalidRequest):
        frame_produced(data, timestamp_ms=1)


@pytest.mark.parametrize("data", NO_METADATA_RECORDS)
def test_what_a_proposal_would_not_keep_is_refused_rather_than_dropped(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="a value, no key and no headers"):
        proposals_produced(data)
    with pytest.raises(InvalidRequest, match="a value, no key and no headers"):
        frame_produced(data, timestamp_ms=1)
