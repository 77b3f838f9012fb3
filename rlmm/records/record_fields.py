"""Encodes and decodes the fields that Strandline's metadata records and rows have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.primitives import Reader, Writer
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import Mode
from rlmm.segment import Incarnation

Tags = tuple[tuple[int, bytes], ...]
Value = TypeVar("Value")


def write_partition(writer: Writer, partition: TopicIdPartition, tags: Tags = ()) -> None:
    """Write Kafka's TopicIdPartitionEntry."""
    writer.string(partition.topic)
    writer.uuid(partition.topic_id)
    writer.int32(partition.partition)
    writer.tagged_fields(tags)


def read_partition(reader: Reader) -> tuple[TopicIdPartition, Tags]:
    """Read Kafka's TopicIdPartitionEntry with its unknown tagged fields."""
    topic = reader.string()
    topic_id = reader.uuid()
    partition = reader.int32()
    return TopicIdPartition(topic, topic_id, partition), reader.tagged_fields()


def write_incarnation(writer: Writer, incarnation: Incarnation) -> None:
    writer.int32(incarnation.node_id)
    writer.uuid(incarnation.directory_id)
    writer.int64(incarnation.boot_counter)


def read_incarnation(reader: Reader) -> Incarnation:
    node_id = reader.int32()
    directory_id = reader.uuid()
    return Incarnation(node_id, directory_id, reader.int64())


def write_epochs(writer: Writer, epochs: Epochs) -> None:
    writer.array_length(len(epochs))
    for entry in epochs:
        writer.int32(entry.epoch)
        writer.int64(entry.start_offset)


def read_epochs(reader: Reader) -> Epochs:
    return tuple(EpochEntry(reader.int32(), reader.int64()) for _ in range(reader.array_length()))


def read_mode(reader: Reader) -> Mode:
    number = reader.int8()
    try:
        return Mode(number)
    except ValueError:
        raise reader.corrupt(f"unknown partition mode {number}") from None


def int64_bytes(value: int) -> bytes:
    """The value of a tagged field that is an int64."""
    writer = Writer()
    writer.int64(value)
    return writer.done()


def value_of(raw: bytes, source: str, read: Callable[[Reader], Value]) -> Value:
    """Decode a value that must be all of `raw`, like that of a tagged field."""
    reader = Reader(raw, source)
    value = read(reader)
    reader.expect_end()
    return value
