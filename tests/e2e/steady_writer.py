"""Produces in the background through every fault, in transactions and outside, and keeps the book.

A producer that a fault has made unusable is replaced: what was not acknowledged is nobody's loss.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.e2e.background_rounds import BackgroundRounds
from tests.e2e.ledger import Ledger, LogKey, value_of
from tests.real.kafka_clients import open_producer

TRANSACTION_DEADLINE_S = 20
FLUSH_DEADLINE_S = 60
JOIN_DEADLINE_S = 150
ROUND_PAUSE_S = 0.25
PLAIN_RECORDS = 25
TRANSACTION_RECORDS = 25
COMMITS_OF_FOUR = 3
FILLER_RECORDS = 900
CONFIG: dict[str, str | int] = {
    "batch.num.messages": 20,
    "enable.idempotence": "true",
    "linger.ms": 5,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "message.timeout.ms": FLUSH_DEADLINE_S * 1_000,
    "compression.type": "lz4",
}
TRANSACTIONAL: dict[str, str | int] = {
    "transactional.id": "steady",
    "transaction.timeout.ms": 15_000,
    "message.timeout.ms": 15_000,
}


class SteadyWriter(BackgroundRounds):
    """Writes to `targets` round after round while it is entered; a bug of its own is raised then.

    `targets` may be changed with `paused` only.
    """

    def __init__(self, bootstrap: str, ledger: Ledger, seed: int) -> None:
        super().__init__("steady writer", pause_s=ROUND_PAUSE_S, join_deadline_s=JOIN_DEADLINE_S)
        self.targets: set[LogKey] = set()
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._chance = random.Random(seed)
        self._numbers = count()
        self._plain: Producer | None = None
        self._transactional: Producer | None = None
        self._round = threading.Lock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Between two rounds: nothing is under way, and every producer is new afterwards."""
        with self._round:
            yield
            self._plain = None
            self._transactional = None

    def write_filler(self) -> None:
        """After the writer was left: records outside of transactions, to seal what is before."""
        for _ in range(3):
            written: set[LogKey] = set()
            for key in sorted(self.targets):
                if self._write_plain([key], FILLER_RECORDS):
                    written.add(key)
            if written == self.targets:
                return
        raise TimeoutError("the brokers took no records")

    def do_round(self) -> None:
        with self._round:
            targets = sorted(self.targets)
            self._write_plain(targets, PLAIN_RECORDS)
            self._write_transaction(targets)

    def _write_plain(self, targets: Sequence[LogKey], records: int) -> bool:
        """Whether all of it was acknowledged."""
        if self._plain is None:
            self._plain = open_producer(self._bootstrap, CONFIG)
        acknowledged: list[tuple[LogKey, int]] = []
        try:
            self._send(self._plain, targets, records, acknowledged)
            whole = self._plain.flush(FLUSH_DEADLINE_S) == 0
        except (KafkaException, BufferError):
            whole = False
        whole = whole and len(acknowledged) == len(targets) * records
        if not whole:
            self._plain = None
        self._ledger.decide(acknowledged, committed=True)
        return whole

    def _write_transaction(self, targets: Sequence[LogKey]) -> None:
        commit = self._chance.randrange(4) < COMMITS_OF_FOUR
        acknowledged: list[tuple[LogKey, int]] = []
        try:
            producer = self._open_transactional()
            producer.begin_transaction()
            self._send(producer, targets, TRANSACTION_RECORDS, acknowledged)
            # An abort throws away what is still queued: flush, so that the log really holds it.
            producer.flush(TRANSACTION_DEADLINE_S)
            if commit:
                _until_decided(producer.commit_transaction)
            else:
                _until_decided(producer.abort_transaction)
        except (KafkaException, BufferError) as error:
            producer_, self._transactional = self._transactional, None
            if producer_ is None or not _wants_abort(error):
                return  # undecided to us: the transaction coordinator ends it
            try:
                _until_decided(producer_.abort_transaction)
            except KafkaException:
                return
            commit = False
        self._ledger.decide(acknowledged, committed=commit)

    def _open_transactional(self) -> Producer:
        if self._transactional is None:
            producer = open_producer(self._bootstrap, {**CONFIG, **TRANSACTIONAL})
            producer.init_transactions(TRANSACTION_DEADLINE_S)
            self._transactional = producer
        return self._transactional

    def _send(
        self,
        producer: Producer,
        targets: Sequence[LogKey],
        records: int,
        acknowledged: list[tuple[LogKey, int]],
    ) -> None:
        for key in targets:
            for _ in range(records):
                number = next(self._numbers)
                producer.produce(
                    key.topic,
                    value=value_of(number),
                    partition=key.partition,
                    on_delivery=self._book(key, number, acknowledged),
                )
            producer.poll(0)

    def _book(
        self, key: LogKey, number: int, acknowledged: list[tuple[LogKey, int]]
    ) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None and offset >= 0:
                self._ledger.acknowledge(key, offset, number)
                acknowledged.append((key, offset))

        return on_delivery


def _until_decided(end: Callable[[float], None]) -> None:
    """Commit or abort; what may be repeated is repeated."""
    for _ in range(3):
        with suppress(_RetriableError):
            _once(end)
            return
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class _RetriableError(Exception):
    """Ask again."""


def _once(end: Callable[[float], None]) -> None:
    try:
        end(TRANSACTION_DEADLINE_S)
    except KafkaException as error:
        if error.args[0].retriable():
            raise _RetriableError from error
        raise


def _wants_abort(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].txn_requires_abort())
