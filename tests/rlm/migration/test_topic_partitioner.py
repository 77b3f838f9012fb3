"""Partitions of the metadata topic, by values that Kafka's own classes gave."""

from __future__ import annotations

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.topic_partitioner import metadata_partition, murmur2

BY_KAFKA = {
    ("ESIzRFVmd4iZqrvM3e7_AA", 50): {0: 15, 1: 10, 2: 8, 3: 49, 17: 24},
    ("ESIzRFVmd4iZqrvM3e7_AA", 5): {0: 0, 1: 0, 2: 3, 3: 4, 17: 4},
    ("jF8s79t9SrG_PNqlwv7bAA", 50): {0: 30, 1: 24, 2: 13, 3: 43},
}


@pytest.mark.parametrize(("topic_id", "count"), BY_KAFKA)
def test_a_partition_is_where_kafka_puts_it(topic_id: str, count: int) -> None:
    found = {
        number: metadata_partition(TopicIdPartition("any", Uuid.parse(topic_id), number), count)
        for number in BY_KAFKA[topic_id, count]
    }
    assert found == BY_KAFKA[topic_id, count]


@pytest.mark.parametrize(
    ("data", "signed"),
    # Of UtilsTest, which has them from Kafka's class.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafkas_producer(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF
