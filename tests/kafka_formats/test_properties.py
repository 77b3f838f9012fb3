"""`partition.metadata` and `meta.properties`: as brokers write them, round trips, damage."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)
from tests.kafka_formats.damage import SOURCE, damaged, survives

TOPIC_ID = Uuid.parse("sSXk-ncCSjyvMoJJF1uaKg")
PARTITION_METADATA = b"version: 0\ntopic_id: sSXk-ncCSjyvMoJJF1uaKg"
META_PROPERTIES = (
    b"#\n#Fri Nov 21 11:34:06 UTC 2025\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
    b"directory.id=sSXk-ncCSjyvMoJJF1uaKg\nnode.id=1\nversion=1\n"
)


def topic_id_of(data: bytes) -> Uuid:
    return parse_partition_metadata(data, source=SOURCE)


def meta_of(data: bytes) -> MetaProperties:
    return parse_meta_properties(data, source=SOURCE)


def test_a_partition_metadata_file_is_read_and_written_as_kafka_does() -> None:
    assert topic_id_of(PARTITION_METADATA) == TOPIC_ID
    assert topic_id_of(PARTITION_METADATA + b"\n") == TOPIC_ID
    assert encode_partition_metadata(TOPIC_ID) == PARTITION_METADATA


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has the lines"),
        (b"version: 0\n", "has the lines"),
        (PARTITION_METADATA + b"\nmore", "has the lines"),
        (b"version: 1\ntopic_id: sSXk-ncCSjyvMoJJF1uaKg", "version 1"),
        (b"version: 0\ntopic_id: sSXk-ncCSjyvMoJJF1uaK", "not a Kafka Uuid"),
        (b"version: 0\ntopic_id: sSXk-ncCSjyvMoJJF1uaK!", "not a Kafka Uuid"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "all zeros"),
        (b"version: 0\ntopic_id: \xff", "has the lines"),
    ],
)
def test_a_malformed_partition_metadata_file_is_corrupt_data(data: bytes, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        topic_id_of(data)


@pytest.mark.parametrize("size", range(len(PARTITION_METADATA)))
def test_every_truncation_of_a_partition_metadata_file_is_noticed(size: int) -> None:
    assert not survives(topic_id_of, PARTITION_METADATA[:size])


@settings(max_examples=100, deadline=None)
@given(damaged(PARTITION_METADATA))
def test_a_damaged_partition_metadata_file_is_corrupt_data_or_another_id(data: bytes) -> None:
    survives(topic_id_of, data)


def test_a_meta_properties_file_is_read() -> None:
    assert meta_of(META_PROPERTIES) == MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qg", 1, TOPIC_ID)


def test_version_0_names_the_broker() -> None:
    assert meta_of(b"version=0\nbroker.id=7\ncluster.id=abc\n") == MetaProperties(0, "abc", 7)


def test_the_syntax_of_java_properties_is_understood() -> None:
    text = b"! note\r\n  version : 1\r\nnode.id 5\ncluster\\.id=a\\:b\\=c\\\\d\\u0041\\ttab\n\n#end"
    assert meta_of(text) == MetaProperties(1, "a:b=c\\dA\ttab", 5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "version is missing"),
        (b"version=2\nnode.id=1\ncluster.id=a\n", "version = '2'"),
        (b"version=1\nbroker.id=1\ncluster.id=a\n", "node.id is missing"),
        (b"version=0\nnode.id=1\ncluster.id=a\n", "broker.id is missing"),
        (b"version=1\nnode.id=-1\ncluster.id=a\n", "node.id = '-1'"),
        (b"version=1\nnode.id=2147483648\ncluster.id=a\n", "node.id = '2147483648'"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\nnode.id=1\ncluster.id=\n", "cluster.id is missing"),
        (b"version=1\nnode.id=1\ncluster.id=a\ndirectory.id=x\n", "not a Kafka Uuid"),
        (b"version=1\nnode.id=1\ncluster.id=a\\\n", "is incomplete"),
        (b"version=1\nnode.id=1\ncluster.id=\\u12\n", "is incomplete"),
    ],
)
def test_a_malformed_meta_properties_file_is_corrupt_data(data: bytes, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        meta_of(data)


@settings(max_examples=100, deadline=None)
@example(1, "0 ", 1, None)
@example(1, " ", 1, None)
@given(
    st.integers(0, 1),
    st.text(min_size=1),
    st.integers(0, 2**31 - 1),
    st.none() | st.binary(min_size=16, max_size=16).map(Uuid),
)
def test_what_is_written_is_read(
    version: int, cluster_id: str, node_id: int, directory_id: Uuid | None
) -> None:
    properties = MetaProperties(version, cluster_id, node_id, directory_id)
    assert meta_of(encode_meta_properties(properties)) == properties


@settings(max_examples=100, deadline=None)
@given(damaged(META_PROPERTIES))
def test_a_damaged_meta_properties_file_is_corrupt_data_or_another_identity(data: bytes) -> None:
    survives(meta_of, data)


def test_the_zero_id_is_never_a_topics() -> None:
    with pytest.raises(CorruptData):
        topic_id_of(encode_partition_metadata(ZERO_UUID))
