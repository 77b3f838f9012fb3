"""Produces to a topic in the background: every codec, headers, transactions that end either way."""

from __future__ import annotations

import random
from collections.abc import Iterator

from confluent_kafka import Producer

from tests.e2e.background_rounds import BackgroundRounds
from tests.real.kafka_clients import CODECS, Headers, NewRecord, flush, open_producer, send

TRANSACTION_DEADLINE_S = 60
JOIN_DEADLINE_S = 120
ROUND_PAUSE_S = 0.2
RECORDS_PER_BATCH = 120
FILLER_BATCHES = 6
SMALL_BATCHES: dict[str, str | int] = {
    "batch.num.messages": 20,
    "enable.idempotence": "true",
    "reconnect.backoff.max.ms": 500,
}


class Writer(BackgroundRounds):
    """Writes round after round until it is left; a failure is raised then.

    The producers live as long as the writer, through every bounce of the broker.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, pause_s: float = ROUND_PAUSE_S
    ) -> None:
        super().__init__("writer", pause_s=pause_s, join_deadline_s=JOIN_DEADLINE_S)
        self._topic = topic
        self._partitions = partitions
        self._random = random.Random(20_240_601)
        self._plain = {
            codec: open_producer(bootstrap, {**SMALL_BATCHES, "compression.type": codec})
            for codec in CODECS
        }
        self._transactional = {
            codec: open_producer(
                bootstrap,
                {
                    **SMALL_BATCHES,
                    "compression.type": codec,
                    "transactional.id": f"writer-{codec}",
                },
            )
            for codec in ("none", "zstd")
        }

    def write_rounds(self, count: int) -> None:
        """So many rounds and the filler, by the caller: nobody enters the writer."""
        self.begin()
        for _ in range(count):
            self.do_round()
        self.write_filler()

    def write_filler(self) -> None:
        """Records outside of transactions: what is sealed behind them has decided all others."""
        for _ in range(FILLER_BATCHES):
            self._write_plain("none")

    def begin(self) -> None:
        for producer in self._transactional.values():
            producer.init_transactions(TRANSACTION_DEADLINE_S)

    def do_round(self) -> None:
        """Every codec once to every partition, and transactions that end either way."""
        for codec in CODECS:
            self._write_plain(codec)
        for producer in self._transactional.values():
            for count, commit in ((30, True), (25, False), (5, False), (10, True)):
                self._write_transaction(producer, count, commit=commit)

    def _write_plain(self, codec: str) -> None:
        self._send(self._plain[codec], RECORDS_PER_BATCH)

    def _write_transaction(self, producer: Producer, count: int, *, commit: bool) -> None:
        producer.begin_transaction()
        self._send(producer, count)
        if commit:
            producer.commit_transaction(TRANSACTION_DEADLINE_S)
        else:
            producer.abort_transaction(TRANSACTION_DEADLINE_S)

    def _send(self, producer: Producer, count: int) -> None:
        """To every partition, and wait: an abort would throw away what is still queued."""
        for partition in range(self._partitions):
            send(producer, self._topic, partition, self._records(count))
        flush(producer)

    def _records(self, count: int) -> Iterator[NewRecord]:
        for number in range(count):
            value = self._random.randbytes(100) + b"the same again and again " * 6
            yield NewRecord(
                value=None if number % 17 == 16 else value,
                key=None if number % 5 == 0 else f"key-{number}".encode(),
                headers=self._headers(number),
            )

    def _headers(self, number: int) -> Headers:
        if number % 3:
            return ()
        return (("trace", self._random.randbytes(8)), ("empty", b""), ("none", None))
