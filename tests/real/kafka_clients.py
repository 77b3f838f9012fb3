"""Producers and consumers (librdkafka) for tests against a real broker."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENT_DEADLINE_S = 60

Isolation = Literal["read_uncommitted", "read_committed"]
Headers = tuple[tuple[str, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record to produce; `timestamp_ms` 0 means now."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = 0


class ConsumedRecord(NamedTuple):
    """A record as a consumer read it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def as_json(self) -> dict[str, object]:
        """The form of `tests/data/*/expected`: bytes in base64."""
        return {
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "key": _text(self.key),
            "value": _text(self.value),
            "headers": [[name, _text(value)] for name, value in self.headers],
        }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def open_producer(bootstrap: str, config: Mapping[str, str | int] | None = None) -> Producer:
    """A producer that acknowledges by all replicas and keeps its output silent."""
    return Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **(config or {})}
    )


def produce(
    bootstrap: str,
    topic: str,
    partition: int,
    records: Iterable[NewRecord],
    *,
    codec: str = "none",
    config: Mapping[str, str | int] | None = None,
) -> None:
    """Produce `records` and wait until every one is acknowledged."""
    producer = open_producer(bootstrap, {"compression.type": codec, **(config or {})})
    send(producer, topic, partition, records)
    flush(producer)


def produce_transactions(
    bootstrap: str,
    topic: str,
    partition: int,
    transactions: Sequence[tuple[Sequence[NewRecord], bool]],
    *,
    transactional_id: str,
    codec: str = "none",
    config: Mapping[str, str | int] | None = None,
) -> None:
    """One transaction after the other, each (records, commit); `commit` false aborts it."""
    producer = open_producer(
        bootstrap,
        {"compression.type": codec, "transactional.id": transactional_id, **(config or {})},
    )
    producer.init_transactions(CLIENT_DEADLINE_S)
    for records, commit in transactions:
        producer.begin_transaction()
        send(producer, topic, partition, records)
        # An abort throws away what is still queued: flush, so that the log really holds it.
        flush(producer)
        if commit:
            producer.commit_transaction(CLIENT_DEADLINE_S)
        else:
            producer.abort_transaction(CLIENT_DEADLINE_S)


def send(producer: Producer, topic: str, partition: int, records: Iterable[NewRecord]) -> None:
    """Queue `records`; `flush` waits for them."""
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=partition,
            on_delivery=_raise_on_failure,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        producer.poll(0)


def flush(producer: Producer) -> None:
    """Wait until everything queued is acknowledged."""
    left = producer.flush(CLIENT_DEADLINE_S)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {CLIENT_DEADLINE_S} s")


def _raise_on_failure(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def consume_all(
    bootstrap: str,
    topic: str,
    partition: int,
    *,
    isolation: Isolation = "read_uncommitted",
    config: Mapping[str, str | int] | None = None,
) -> list[ConsumedRecord]:
    """Everything a consumer reads from the log start to the end of the partition."""
    consumer = _open_consumer(bootstrap, isolation, config)
    try:
        low, _ = _bounds(consumer, topic, partition)
        consumer.assign([TopicPartition(topic, partition, low)])
        return _until_the_end(consumer)
    finally:
        consumer.close()


def log_bounds(
    bootstrap: str, topic: str, partition: int, *, isolation: Isolation = "read_uncommitted"
) -> tuple[int, int]:
    """Log start offset, and high watermark or (read_committed) last stable offset."""
    consumer = _open_consumer(bootstrap, isolation, None)
    try:
        return _bounds(consumer, topic, partition)
    finally:
        consumer.close()


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    end = time.monotonic() + CLIENT_DEADLINE_S
    while True:
        try:
            bounds = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=CLIENT_DEADLINE_S, cached=False
            )
            break
        except KafkaException as error:  # a broker that knows the new leader later than others
            moved = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not moved or time.monotonic() > end:
                raise
    assert bounds is not None, f"no offsets of {topic}-{partition} within {CLIENT_DEADLINE_S} s"
    return bounds


def _open_consumer(
    bootstrap: str, isolation: Isolation, config: Mapping[str, str | int] | None
) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "strandline-tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # the broker says half a second later that this is the end
            "log_level": 0,
            **(config or {}),
        }
    )


def _until_the_end(consumer: Consumer) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    end = time.monotonic() + CLIENT_DEADLINE_S
    while time.monotonic() < end:
        # One by one: `consume` waits for as many as it may give, also behind the end.
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            records.append(_consumed(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            return records
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    raise TimeoutError(f"the end of the partition was not reached within {CLIENT_DEADLINE_S} s")


def _consumed(message: Message) -> ConsumedRecord:
    offset = message.offset()
    assert offset is not None
    return ConsumedRecord(
        offset=offset,
        timestamp_ms=message.timestamp()[1],
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in _pairs(message)),
    )


def _pairs(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else list(headers)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
