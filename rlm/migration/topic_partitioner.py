"""Computes the partition of the metadata topic for the records of a user's partition. Pure.

Source: RemoteLogMetadataTopicPartitioner. It hashes topic id and partition number, without the
topic's name, into four bytes, and hashes these with the producer's murmur2.
"""

from __future__ import annotations

import struct

from kafka_formats.topic_id_partition import TopicIdPartition

_LONGS = struct.Struct(">QQ")
_WORD = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """The metadata topic's partition for `partition`; the topic has `count` partitions, at least
    one.
    """
    high, low = _LONGS.unpack(partition.topic_id)
    hashed = 1
    for number in (_folded(low), _folded(high), partition.partition):
        hashed = (31 * hashed + number) & _WORD
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % count


def _folded(number: int) -> int:
    """Java's hash of a long."""
    return (number ^ (number >> 32)) & _WORD


def murmur2(data: bytes) -> int:
    """The hash that Kafka uses for keys, as an unsigned number of 32 bits."""
    hashed = (_SEED ^ len(data)) & _WORD
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = (int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER) & _WORD
        word = ((word ^ (word >> _SHIFT)) * _MULTIPLIER) & _WORD
        hashed = ((hashed * _MULTIPLIER) & _WORD) ^ word
    if whole < len(data):
        rest = int.from_bytes(data[whole:], "little")
        hashed = ((hashed ^ rest) * _MULTIPLIER) & _WORD
    hashed = ((hashed ^ (hashed >> 13)) * _MULTIPLIER) & _WORD
    return hashed ^ (hashed >> 15)
