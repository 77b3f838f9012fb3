"""Answers to a Fetch of the metadata topic, which end anywhere in a batch."""

from __future__ import annotations

import pytest

from kafka_client.connection import Connection
from kafka_client.replica_answers import Batches
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration import topic_records
from rlm.migration.topic_records import RecordsBetween

BATCHES = tuple(encode_batch([Record(at, 0, None, b"row")], base_offset=at) for at in range(3))
LOG = b"".join(BATCHES)
SOURCE = "the topic"


def between() -> tuple[RecordsBetween, list[int]]:
    taken: list[int] = []
    partition = TopicIdPartition("__remote_log_metadata", Uuid(b"an id of 16 byte"), 0)
    records = RecordsBetween(partition, SOURCE, 0, 3, lambda record: taken.append(record.offset))
    return records, taken


async def fetched(monkeypatch: pytest.MonkeyPatch, records: RecordsBetween, data: bytes) -> None:
    async def answer(*_asked: object, **_limits: object) -> Batches:
        return Batches(data, 3)

    monkeypatch.setattr(topic_records, "fetch_batches", answer)
    await records.fetch(_NOBODY)


_NOBODY = object.__new__(Connection)


@pytest.mark.parametrize("cut", range(1, len(BATCHES[2])))
async def test_an_answer_may_end_anywhere_in_its_last_batch(
    monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    records, taken = between()
    await fetched(monkeypatch, records, LOG[: -len(BATCHES[2])] + BATCHES[2][:cut])
    assert (taken, records.next_offset) == ([0, 1], 2)
    await fetched(monkeypatch, records, BATCHES[2])
    assert (taken, records.next_offset) == ([0, 1, 2], 3)


@pytest.mark.parametrize("at", [16, 17, 70])
async def test_a_damaged_batch_is_no_end_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Its magic, its checksum, its records."""
    records, taken = between()
    damaged = bytearray(LOG)
    damaged[len(BATCHES[0]) + at] ^= 1
    with pytest.raises(CorruptData) as raised:
        await fetched(monkeypatch, records, bytes(damaged))
    assert (raised.value.source, raised.value.position) == (SOURCE, len(BATCHES[0]))
    assert taken == [0]
