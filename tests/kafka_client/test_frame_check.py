"""Frames are walked before kio decodes them: no bytes abort the process or raise anything else."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v2 import ApiVersionsResponse
from kio.schema.api_versions.v3 import ApiVersionsResponse as FlexibleApiVersionsResponse
from kio.schema.api_versions.v3.response import SupportedFeatureKey
from kio.schema.describe_configs.v3 import DescribeConfigsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import FetchResponse
from kio.schema.list_offsets import v5, v8
from kio.schema.metadata.v8 import MetadataResponse
from kio.schema.metadata.v8.response import MetadataResponseBroker
from kio.schema.metadata.v12 import MetadataResponse as MetadataByIdResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i16, i32, i64

from kafka_client.frame_check import FrameError, frame_end
from rlmm.wire.schema import TAGGED_FIELDS_MAX, skip_tagged_fields
from tests.kafka_client.fake_broker import NO_THROTTLE

ENTITIES: tuple[type[Any], ...] = (
    ApiVersionsResponse,
    FlexibleApiVersionsResponse,
    DescribeConfigsResponse,
    MetadataResponse,
    MetadataByIdResponse,
    FetchResponse,
    v5.ListOffsetsResponse,
    v8.ListOffsetsResponse,
)
HUGE_COUNT_COMPACT = b"\xff\xff\xff\xff\x0f"
HUGE_COUNT = b"\x7f\xff\xff\xff"


def encoded(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


METADATA = MetadataResponse(
    throttle_time=NO_THROTTLE,
    brokers=(
        MetadataResponseBroker(node_id=BrokerId(1), host="h1", port=i32(9092), rack=None),
        MetadataResponseBroker(node_id=BrokerId(2), host="host-2", port=i32(9093), rack="r"),
    ),
    cluster_id=None,
    topics=(),
)
OFFSETS = v8.ListOffsetsResponse(
    throttle_time=NO_THROTTLE,
    topics=(
        v8.response.ListOffsetsTopicResponse(
            name=TopicName("orders"),
            partitions=tuple(
                v8.response.ListOffsetsPartitionResponse(
                    partition_index=i32(number), error_code=ErrorCode.none, offset=i64(number)
                )
                for number in range(3)
            ),
        ),
    ),
)
FEATURES = FlexibleApiVersionsResponse(
    error_code=ErrorCode.none,
    api_keys=(),
    throttle_time=NO_THROTTLE,
    supported_features=(
        SupportedFeatureKey(name="metadata.version", min_version=i16(1), max_version=i16(29)),
    ),
    finalized_features_epoch=i64(7),
)


@pytest.mark.parametrize("entity", [METADATA, OFFSETS, FEATURES])
def test_the_end_of_a_frame_is_where_kio_finds_it(entity: Any) -> None:
    data = encoded(entity)
    assert frame_end(type(entity), b"???" + data, 3) == 3 + len(data)
    assert entity_reader(type(entity))(data, 0) == (entity, len(data))


@pytest.mark.parametrize("entity", [METADATA, OFFSETS, FEATURES])
def test_every_cut_frame_is_refused(entity: Any) -> None:
    data = encoded(entity)
    for length in range(len(data)):
        with pytest.raises(FrameError):
            frame_end(type(entity), data[:length], 0)


def test_an_array_longer_than_the_frame_is_refused_before_it_gets_room() -> None:
    with pytest.raises(FrameError, match="2147483647 elements are announced in 2 bytes"):
        frame_end(MetadataResponse, bytes(4) + HUGE_COUNT + bytes(2), 0)
    with pytest.raises(FrameError, match="elements are announced in 2 bytes"):
        frame_end(v8.ListOffsetsResponse, bytes(4) + HUGE_COUNT_COMPACT + bytes(2), 0)


def test_an_unknown_tag_is_refused_by_name() -> None:
    with pytest.raises(FrameError, match="unknown tagged field 9"):
        frame_end(v8.ListOffsetsResponse, bytes(4) + b"\x01" + b"\x01\x09\x00", 0)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(ENTITIES),
    st.lists(
        st.one_of(
            st.binary(max_size=6),
            st.sampled_from([b"\0", b"\x01", b"\x02", HUGE_COUNT, HUGE_COUNT_COMPACT, b"\xff"]),
        ),
        max_size=12,
    ),
)
def test_what_passes_the_check_kio_decodes_or_refuses(
    entity: type[Any], pieces: list[bytes]
) -> None:
    frame = b"".join(pieces)
    try:
        end = frame_end(entity, frame, 0)
    except FrameError:
        return
    try:
        _, size = entity_reader(entity)(frame, 0)
    except (SerialError, ValueError, LookupError, OverflowError):
        return
    assert size == end


def test_thousands_of_tagged_fields_are_refused_before_any_is_read() -> None:
    """They took the event loop 1.8 s."""
    many = bytes((9, 0)) * 32_700
    for count in (TAGGED_FIELDS_MAX + 1, 32_700):
        announced = bytes((0x80 | count & 0x7F, 0x80 | count >> 7 & 0x7F, count >> 14))
        with pytest.raises(FrameError, match="tagged fields"):
            skip_tagged_fields(announced + many, 0)
