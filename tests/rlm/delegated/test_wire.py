"""Bodies between plug-in and node: round trips, every cut and every byte too much refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import wire
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from sim.tier import plugin_bodies

int8s = st.integers(-(2**7), 2**7 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=30)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
maybe_bytes = st.none() | st.binary(max_size=40)
tips = st.builds(TopicIdPartition, texts, uuids, int32s)
tip_lists = st.lists(tips, max_size=3).map(tuple)
rows = st.builds(
    RemoteLogSegmentMetadata,
    segment_id=st.builds(RemoteLogSegmentId, tips, uuids),
    start_offset=int64s,
    end_offset=int64s,
    broker_id=int32s,
    max_timestamp_ms=int64s,
    event_timestamp_ms=int64s,
    leader_epochs=st.lists(st.tuples(int32s, int64s), max_size=3).map(tuple),
    size_bytes=int32s,
    custom_metadata=maybe_bytes,
    state=st.sampled_from(SegmentState),
    txn_index_empty=st.booleans(),
)
announcements = st.builds(
    wire.Announcement,
    texts, int32s, texts, texts, texts, uuids, int64s, int64s, tip_lists, tip_lists, tip_lists,
)  # fmt: skip
updates = st.builds(
    RemoteLogSegmentMetadataUpdate,
    st.builds(RemoteLogSegmentId, tips, uuids),
    int32s,
    int64s,
    maybe_bytes,
    st.sampled_from(SegmentState),
)
deletes = st.builds(
    RemotePartitionDeleteMetadata, tips, int32s, int64s, st.sampled_from(PartitionDeleteState)
)
copies = st.builds(wire.CopyFiles, rows, texts, texts, texts, texts, texts, st.binary(max_size=40))

Codec = tuple[Callable[..., bytes], Callable[[bytes], object], st.SearchStrategy[object]]
CODECS: dict[str, Codec] = {
    "announce": (plugin_bodies.announce, wire.decode_announcement, announcements),
    "ready": (plugin_bodies.ready, wire.decode_ready, tips),
    "lookup": (
        plugin_bodies.look_up,
        wire.decode_look_up,
        st.builds(wire.LookUp, tips, int32s, int64s, st.booleans()),
    ),
    "highest": (
        plugin_bodies.highest,
        wire.decode_highest,
        st.builds(wire.Highest, tips, int32s),
    ),
    "list": (
        plugin_bodies.list_segments,
        wire.decode_list,
        st.builds(wire.ListSegments, tips, int32s, maybe_bytes, maybe_bytes),
    ),
    "add": (plugin_bodies.row, wire.decode_row, rows),
    "update": (plugin_bodies.update, wire.decode_update, updates),
    "delete-partition": (plugin_bodies.delete_partition, wire.decode_delete_partition, deletes),
    "copy": (plugin_bodies.copy, wire.decode_copy, copies),
    "fetch": (
        plugin_bodies.fetch,
        wire.decode_fetch,
        st.builds(wire.Fetch, rows, int64s, int64s),
    ),
    "index": (
        plugin_bodies.fetch_index,
        wire.decode_index,
        st.builds(wire.FetchIndex, rows, int8s),
    ),
}


@pytest.mark.parametrize("call", sorted(CODECS))
@settings(max_examples=30)
@given(data=st.data())
def test_a_request_is_read_as_it_was_written_and_in_no_other_way(
    call: str, data: st.DataObject
) -> None:
    encode, decode, values = CODECS[call]
    value = data.draw(values)
    body = encode(value)
    assert decode(body) == value
    for end in range(len(body)):
        with pytest.raises(InvalidRequest):
            decode(body[:end])
    with pytest.raises(InvalidRequest, match="follow the end"):
        decode(body + b"\0")


@pytest.mark.parametrize("call", sorted(CODECS))
@settings(max_examples=100)
@given(body=st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(call: str, body: bytes) -> None:
    with suppress(InvalidRequest):
        CODECS[call][1](body)


def test_a_count_that_the_body_cannot_hold_costs_no_memory() -> None:
    body = bytearray(plugin_bodies.announce(wire.Announcement(
        "c", 1, "", "", "", Uuid(bytes(16)), 1, wire.WHOLE_SET, (), (), ()
    )))  # fmt: skip
    body[-4:] = b"\x7f\xff\xff\xff"
    with pytest.raises(InvalidRequest, match="do not fit"):
        wire.decode_announcement(bytes(body))


@given(applied=int64s, row=rows, offset=int64s, why=texts, ready=st.booleans())
def test_answers_say_also_that_there_is_nothing(
    applied: int, row: RemoteLogSegmentMetadata, offset: int, why: str, ready: bool
) -> None:
    tip = row.segment_id.partition
    assert plugin_bodies.read_applied(wire.encode_applied(applied)) == applied
    assert plugin_bodies.read_ready(wire.encode_ready(applied, ready, why)) == (applied, ready, why)
    for found in (row, None):
        assert plugin_bodies.read_found(wire.encode_found(applied, found), tip) == (applied, found)
    for highest in (offset, None):
        answer = wire.encode_highest(applied, highest)
        assert plugin_bodies.read_highest(answer) == (applied, highest)


@given(applied=int64s, row=rows, tag=st.binary(max_size=20), cursor=maybe_bytes)
def test_a_page_has_its_rows_and_where_the_next_begins(
    applied: int, row: RemoteLogSegmentMetadata, tag: bytes, cursor: bytes | None
) -> None:
    tip = row.segment_id.partition
    page = plugin_bodies.read_page(wire.encode_page(applied, tag, (row, row), cursor), tip)
    assert page == (applied, tag, (row, row), cursor)
    same = plugin_bodies.read_page(wire.encode_same(applied, tag), tip)
    assert same == (applied, tag, None, None)


def test_a_copy_ends_with_custom_metadata_or_with_a_failure() -> None:
    done = wire.HEARTBEAT * 3 + wire.encode_copied(b"custom")
    assert plugin_bodies.read_copied(done) == (3, b"custom", None)
    failed = wire.encode_copy_failed("corrupt_data", "", "x" * 5_000)
    kind, reason, detail = plugin_bodies.read_copied(failed)[2] or ("", "", "")
    assert (kind, reason, detail) == ("corrupt_data", "", "x" * wire.TEXT_CHARACTERS_MAX)
