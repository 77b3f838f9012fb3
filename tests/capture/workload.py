"""What the captured topics hold, made the same way each time (but for batch borders and epochs)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from tests.real.kafka import REQUEST_DEADLINE_S, KafkaBroker, run_tool
from tests.real.kafka_clients import (
    CODECS,
    NewRecord,
    flush,
    open_producer,
    produce,
    produce_transactions,
    send,
)

SEGMENT_BYTES = 8192
START_MS = 1_760_000_000_000
SMALL_BATCHES: dict[str, str | int] = {"batch.num.messages": 12, "linger.ms": 2}
IDEMPOTENT: dict[str, str | int] = {**SMALL_BATCHES, "enable.idempotence": "true"}
ITEMS = ("rope 12 mm", "anchor", "shackle", "lantern", "chart 2041", "compass", "oilskin", "winch")
CITIES = ("Bergen", "Lisboa", "Reykjavik", "Gdansk", "Cork", "Brest", "Tallinn")


@dataclass(frozen=True)
class Topic:
    """A captured topic: its partitions and its configs beyond small segments without retention."""

    partitions: int
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, str]:
        """The configs to create it with."""
        return {
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "index.interval.bytes": "1024",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            **self.extra,
        }


TOPICS = {
    "orders": Topic(3),
    "codecs": Topic(1),
    "payments": Topic(2),
    "events": Topic(2, {"message.timestamp.type": "LogAppendTime"}),
    "profiles": Topic(
        1,
        {
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "600000",
            "file.delete.delay.ms": "1000",
        },
    ),
}


def produce_round(broker: KafkaBroker, round_number: int) -> None:
    """One round between two bounces of the broker: something for every partition."""
    _produce_orders(broker, round_number)
    for position, codec in enumerate(CODECS):
        records = _records(f"codec-{codec}", 12, round_number * 100 + position * 20, headers=True)
        produce(broker.bootstrap, "codecs", 0, records, codec=codec, config=SMALL_BATCHES)
    _produce_payments(broker, round_number)
    for partition in range(2):
        records = _records(f"event-{partition}", 75, round_number * 75)
        produce(broker.bootstrap, "events", partition, records, config=SMALL_BATCHES)
    produce(broker.bootstrap, "profiles", 0, _profiles(round_number), config=SMALL_BATCHES)


def produce_with_java(broker: KafkaBroker) -> None:
    """Kafka's own producer: idempotent, and its snappy is framed otherwise than librdkafka's."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as payloads:
        payloads.writelines(f"{_order(number)}\n" for number in range(40))
        payloads.flush()
        for codec in ("snappy", "lz4"):
            run_tool(
                "org.apache.kafka.tools.ProducerPerformance",
                *("--topic", "codecs", "--num-records", "40", "--throughput", "-1"),
                *("--payload-file", str(Path(payloads.name))),
                *("--bootstrap-server", broker.bootstrap),
                *("--command-property", f"compression.type={codec}", "batch.size=2048"),
            )


def leave_a_transaction_open(broker: KafkaBroker) -> Producer:
    """payments-1 ends in records whose transaction never ended: the LSO stays below them.

    The producer must be kept until the broker is stopped.
    """
    config: dict[str, str | int] = {"transactional.id": "hangs", "transaction.timeout.ms": 900_000}
    producer = open_producer(broker.bootstrap, {**SMALL_BATCHES, **config})
    producer.init_transactions(REQUEST_DEADLINE_S)
    producer.begin_transaction()
    send(producer, "payments", 1, _records("hanging", 5, 9_000))
    flush(producer)
    produce(broker.bootstrap, "payments", 1, _records("behind", 40, 9_100), config=SMALL_BATCHES)
    return producer


def _produce_orders(broker: KafkaBroker, round_number: int) -> None:
    """Plain, lz4 and zstd, by an idempotent producer; about nine sealed segments each."""
    for partition, (codec, count) in enumerate((("none", 120), ("lz4", 240), ("zstd", 330))):
        produce(
            broker.bootstrap,
            "orders",
            partition,
            _records(f"order-{partition}", count, round_number * count),
            codec=codec,
            config=IDEMPOTENT,
        )


def _produce_payments(broker: KafkaBroker, round_number: int) -> None:
    """Two producers' transactions, committed and aborted, between records outside of any."""
    for partition in range(2):
        for number, codec in enumerate(("none", "zstd")):
            start = round_number * 200 + number * 100
            transactions = [
                (list(_records("paid", 15, start)), True),
                (list(_records("refused", 10, start + 20)), False),
                (list(_records("paid", 8, start + 40)), True),
            ]
            produce_transactions(
                broker.bootstrap,
                "payments",
                partition,
                transactions,
                transactional_id=f"till-{partition}-{number}",
                codec=codec,
                config=SMALL_BATCHES,
            )
            between = _records("note", 6, start + 60)
            produce(broker.bootstrap, "payments", partition, between, config=SMALL_BATCHES)


def _records(kind: str, count: int, start: int, *, headers: bool = False) -> Iterator[NewRecord]:
    for number in range(start, start + count):
        yield NewRecord(
            value=_order(number).encode(),
            key=None if number % 7 == 0 else f"{kind}-{number:05}".encode(),
            headers=_headers(number) if headers else (),
            timestamp_ms=START_MS + number * 1_000 - (number % 5) * 300,
        )


def _headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    if number % 4 == 0:
        return ()
    return (("source", b"till"), ("trace", number.to_bytes(8, "big")), ("empty", b""), ("no", None))


def _profiles(round_number: int) -> Iterator[NewRecord]:
    """Every third record is of a key that is written again: compaction leaves gaps."""
    for number in range(round_number * 120, round_number * 120 + 120):
        key = number % 12 if number % 3 == 0 else number
        value = None if number % 29 == 28 else _order(number).encode()
        yield NewRecord(value, f"profile-{key}".encode(), (), START_MS + number * 1_000)


def _order(number: int) -> str:
    return (
        f'{{"order": {number}, "item": "{ITEMS[number * 5 % 8]}", "city": "{CITIES[number % 7]}", '
        f'"quantity": {number % 9 + 1}, "price_cents": {number * 7919 % 100_000}, '
        f'"reference": "{number * 2_654_435_761 % 2**32:08x}{number * 40_503 % 2**32:08x}"}}'
    )
