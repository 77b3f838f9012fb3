"""Produces to a topic in the background: every codec, headers, transactions that end either way."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import count
from types import TracebackType
from typing import Self

from tests.real.kafka_clients import CODECS, Headers, NewRecord, produce, produce_transactions

JOIN_DEADLINE_S = 120
RECORDS_PER_BATCH = 120
SMALL_BATCHES: dict[str, str | int] = {
    "batch.num.messages": 20,
    "enable.idempotence": "true",
    "reconnect.backoff.max.ms": 500,
}


class Writer:
    """Writes round after round until it is left; a failure is raised then."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._random = random.Random(20_240_601)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(JOIN_DEADLINE_S)
        assert not self._thread.is_alive(), "the writer hangs"
        if self._error is not None and error is None:
            raise self._error

    def write_round(self, number: int) -> None:
        """Every codec once to every partition, with and without transactions."""
        for partition in range(self._partitions):
            for codec in CODECS:
                self._write_plain(partition, codec)
            self._write_transactions(partition, CODECS[number % len(CODECS)])

    def write_filler(self) -> None:
        """Records outside of transactions: what is sealed behind them has decided all others."""
        for partition in range(self._partitions):
            for _ in range(6):
                self._write_plain(partition, "none")

    def _run(self) -> None:
        try:
            for number in count():
                if self._stop.is_set():
                    return
                self.write_round(number)
        except BaseException as error:
            self._error = error

    def _write_plain(self, partition: int, codec: str) -> None:
        produce(
            self._bootstrap,
            self._topic,
            partition,
            self._records(RECORDS_PER_BATCH),
            codec=codec,
            config=SMALL_BATCHES,
        )

    def _write_transactions(self, partition: int, codec: str) -> None:
        produce_transactions(
            self._bootstrap,
            self._topic,
            partition,
            [
                (list(self._records(30)), True),
                (list(self._records(25)), False),
                (list(self._records(5)), False),
                (list(self._records(10)), True),
            ],
            transactional_id=f"writer-{partition}-{codec}",
            codec=codec,
            config=SMALL_BATCHES,
        )

    def _records(self, number_of: int) -> Iterator[NewRecord]:
        for number in range(number_of):
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
