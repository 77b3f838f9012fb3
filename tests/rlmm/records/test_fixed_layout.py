"""Segment rows go the fast way to what the general one makes of them, always."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.metadata_set import MetadataSet, finished_row
from kafka_formats.errors import CorruptData, InternalError, InvalidRequest, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.records.fixed_layout import (
    decode_segment_row,
    decode_usual,
    decode_usual_update,
    encode_segment_row,
    encode_usual,
)
from rlmm.records.segment_records import (
    TAG_MAX_TIMESTAMP,
    TAG_TOKEN,
    decode_segment_record,
    encode_segment_record,
)
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)

STARTED = MetadataSet(1, 8).started(0, 3)
USUAL = finished_row(MetadataSet(1, 8).started(0, 2), offset=77)


def named(segment_id: RemoteLogSegmentId, topic: str) -> RemoteLogSegmentId:
    return replace(segment_id, partition=replace(segment_id.partition, topic=topic))


LONGEST_NAME = replace(USUAL, segment_id=named(USUAL.segment_id, "t" * 249))
LONGER_METADATA = replace(USUAL, custom_metadata=bytes(400))

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
tags = st.lists(
    st.tuples(
        st.integers(1, 20_000).filter(lambda tag: not TAG_TOKEN <= tag <= TAG_MAX_TIMESTAMP),
        st.binary(),
    ),
    max_size=2,
    unique_by=lambda tag: tag[0],
).map(lambda each: tuple(sorted(each)))
segments = st.builds(
    RemoteLogSegmentMetadata,
    segment_id=st.builds(
        RemoteLogSegmentId,
        st.builds(
            TopicIdPartition,
            st.text(max_size=150) | st.text("ab", min_size=120, max_size=600),
            uuids,
            int32s,
        ),
        uuids,
    ),
    start_offset=int64s,
    end_offset=int64s,
    broker_id=int32s,
    max_timestamp_ms=int64s,
    event_timestamp_ms=int64s,
    leader_epochs=st.lists(st.tuples(int32s, int64s), max_size=140).map(tuple),
    size_bytes=int32s,
    custom_metadata=st.none() | st.binary(max_size=600),
    state=st.sampled_from(SegmentState),
    txn_index_empty=st.booleans(),
    token=st.integers(-1, 2**63 - 1),
    writer=st.none() | st.builds(Incarnation, int32s, uuids, int64s),
    upload_deadline_ms=st.integers(-1, 2**63 - 1),
    finished_at=st.integers(-1, 2**63 - 1),
    unknown_tags=tags,
)


updates = st.builds(
    RemoteLogSegmentMetadataUpdate,
    segment_id=st.builds(
        RemoteLogSegmentId,
        st.builds(
            TopicIdPartition,
            st.text(max_size=150) | st.text("ab", min_size=120, max_size=600),
            uuids,
            int32s,
        ),
        uuids,
    ),
    broker_id=int32s,
    event_timestamp_ms=int64s,
    custom_metadata=st.none() | st.binary(max_size=600),
    state=st.sampled_from(SegmentState),
    token=st.integers(-1, 2**63 - 1),
    writer=st.none() | st.builds(Incarnation, int32s, uuids, int64s),
    expected_state=st.none() | st.sampled_from(SegmentState),
    unknown_tags=tags,
)
FINISHED = MetadataSet(1, 8).finished(0, 3)
DELETED = replace(
    FINISHED,
    state=SegmentState.DELETE_SEGMENT_STARTED,
    custom_metadata=None,
    token=9,
    expected_state=SegmentState.COPY_SEGMENT_FINISHED,
)


def outcome(decode: object, value: bytes) -> object:
    assert callable(decode)
    try:
        return decode(value)
    except StrandlineError as error:
        return type(error), str(error)


def general(value: bytes) -> object:
    return decode_segment_record(value, source="segment row")


@given(segments)
@example(USUAL)
@example(replace(USUAL, txn_index_empty=True))
@example(replace(USUAL, finished_at=-1, state=SegmentState.COPY_SEGMENT_STARTED))
def test_every_segment_comes_back_as_it_was(segment: RemoteLogSegmentMetadata) -> None:
    value = encode_segment_row(segment)
    assert value == encode_segment_record(segment)
    assert decode_segment_row(value) == segment


def test_our_own_segments_go_the_fast_way() -> None:
    for segment in (
        *(USUAL, replace(USUAL, txn_index_empty=True), STARTED),
        *(LONGEST_NAME, LONGER_METADATA),
    ):
        value = encode_usual(segment)
        assert value == encode_segment_record(segment)
        assert decode_usual(value) == segment


@pytest.mark.parametrize("tag", ["token", "upload_deadline_ms", "finished_at"])
def test_a_row_with_a_negative_number_in_a_tag_is_written_without_that_tag(tag: str) -> None:
    written = encode_segment_record(replace(USUAL, **{tag: 2**62}))  # type: ignore[arg-type]
    negative = written.replace((2**62).to_bytes(8, "big"), (2**64 - 5).to_bytes(8, "big"))
    segment = decode_segment_row(negative)
    assert getattr(segment, tag) == -1
    assert encode_segment_row(segment) == encode_segment_record(segment) != negative


def test_what_was_decoded_is_encoded_again_until_it_is_changed() -> None:
    value = encode_segment_record(USUAL)
    segment = decode_segment_row(value)
    assert encode_segment_row(segment) == value
    changed = replace(segment, end_offset=segment.end_offset + 1)
    assert encode_segment_row(changed) == encode_segment_record(changed) != value


@pytest.mark.parametrize(
    "segment",
    [
        replace(USUAL, start_offset=2**63),
        replace(USUAL, size_bytes=-(2**31) - 1),
        replace(USUAL, leader_epochs=((2**31, 0),)),
        replace(USUAL, finished_at=2**63),
        replace(USUAL, writer=Incarnation(2**31, Uuid(bytes(16)), 1)),
    ],
)
def test_what_does_not_fit_is_refused(segment: RemoteLogSegmentMetadata) -> None:
    with pytest.raises(InvalidRequest):
        encode_segment_row(segment)


@given(st.sampled_from([USUAL, replace(USUAL, txn_index_empty=True), STARTED]), st.data())
def test_damaged_rows_mean_the_same_to_both_decoders(
    segment: RemoteLogSegmentMetadata, data: st.DataObject
) -> None:
    value = bytearray(encode_segment_record(segment))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(value)) | st.just(len(value)))
    damaged = bytes(value[:cut])
    expected = outcome(general, damaged)
    found = outcome(decode_segment_row, damaged)
    if isinstance(expected, RemoteLogSegmentMetadata | tuple):
        assert found == expected
    if isinstance(found, RemoteLogSegmentMetadata):
        assert encode_segment_row(found) == encode_segment_record(found)


def test_every_damaged_byte_means_the_same_to_both_decoders() -> None:
    for whole in map(encode_segment_record, (USUAL, STARTED, LONGEST_NAME)):
        _damage_every_byte(whole)


def _damage_every_byte(whole: bytes) -> None:
    for at in range(len(whole)):
        for new in {0, 1, 0x7F, 0x80, 0xFF, whole[at] ^ 1}:
            damaged = whole[:at] + bytes((new,)) + whole[at + 1 :]
            expected = outcome(general, damaged)
            found = outcome(decode_segment_row, damaged)
            if isinstance(expected, RemoteLogSegmentMetadata | tuple):
                assert found == expected, (at, new)
            if isinstance(found, RemoteLogSegmentMetadata):
                assert encode_segment_row(found) == encode_segment_record(found), (at, new)


def test_rows_that_hold_no_segment_are_refused() -> None:
    with pytest.raises(InternalError):
        decode_segment_row(encode_segment_record(MetadataSet(1, 1).finished(0, 0)))
    with pytest.raises(CorruptData):
        decode_segment_row(b"")


@given(updates)
def test_an_update_is_read_as_the_general_way_reads_it(
    update: RemoteLogSegmentMetadataUpdate,
) -> None:
    value = encode_segment_record(update)
    assert general(value) == update
    assert decode_usual_update(value) in (None, update)


def test_our_own_updates_go_the_fast_way() -> None:
    long = replace(FINISHED, segment_id=LONGEST_NAME.segment_id, custom_metadata=bytes(400))
    for update in (
        *(FINISHED, DELETED, long),
        *(replace(DELETED, writer=None), replace(DELETED, token=-1)),
    ):
        assert decode_usual_update(encode_segment_record(update)) == update


def test_every_damaged_byte_of_an_update_means_the_same_both_ways() -> None:
    for whole in map(encode_segment_record, (FINISHED, DELETED)):
        for at in range(len(whole)):
            for new in {0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, whole[at] ^ 1}:
                damaged = whole[:at] + bytes((new,)) + whole[at + 1 :]
                found = decode_usual_update(damaged)
                assert found is None or found == outcome(general, damaged), (at, new)
        for cut in range(len(whole)):
            assert decode_usual_update(whole[:cut]) is None
        assert decode_usual_update(whole + b"\0") is None
