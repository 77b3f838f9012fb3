"""Reads whole partitions from their beginning, scan after scan, each held against the ledger."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.e2e.background_rounds import BackgroundRounds
from tests.e2e.ledger import Acknowledged, Ledger, LogKey, contradictions
from tests.real.kafka_clients import ConsumedRecord, Isolation

SCAN_DEADLINE_S: Final = 90.0
PAUSE_S: Final = 0.1
POLL_S: Final = 0.5
ISOLATIONS: Final[tuple[Isolation, ...]] = ("read_uncommitted", "read_committed")
Found = dict[LogKey, list[ConsumedRecord]]


class ScanningReader(BackgroundRounds):
    """While it is entered, one scan after the other; what is wrong with one is raised then.

    `bootstrap`: of read replicas or brokers. `keys` are the logs to read now. A log in `shortened`
    may begin above 0.
    """

    def __init__(
        self,
        bootstrap: str,
        ledger: Ledger,
        keys: Callable[[], list[LogKey]],
        seed: int,
        *,
        shortened: str | None = None,
        pause_s: float = PAUSE_S,
    ) -> None:
        super().__init__("scanning reader", pause_s=pause_s, join_deadline_s=2 * SCAN_DEADLINE_S)
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._keys = keys
        self._shortened = shortened
        self._chance = random.Random(seed)
        self.scans = 0
        self.records = 0

    def do_round(self) -> None:
        """A scan with an isolation that chance picks."""
        self.scan(self._keys(), self._chance.choice(ISOLATIONS))

    def scan(self, keys: list[LogKey], isolation: Isolation) -> None:
        """Read everything that is acknowledged by now, from the beginning on. AssertionError: some
        of it did not come, or what came is not what was written.
        """
        expected = {key: self._acknowledged(key, isolation) for key in keys}
        found = self._read(expected, isolation)
        wrong = [line for key in keys for line in self._wrong(key, found[key], isolation)]
        assert wrong == [], f"{isolation}: {wrong}"
        self.scans += 1
        self.records += sum(map(len, found.values()))

    def _acknowledged(self, key: LogKey, isolation: Isolation) -> set[int]:
        log = self._ledger.log(key)
        return set(log.committed) if isolation == "read_committed" else set(log.numbers)

    def _read(self, expected: dict[LogKey, set[int]], isolation: Isolation) -> Found:
        """Until what is expected has come, as far as the log has it still."""
        by_place = {(key.topic, key.partition): key for key in expected}
        found: Found = {key: [] for key in expected}
        left = {key: set(offsets) for key, offsets in expected.items() if offsets}
        consumer = self._consumer(isolation)
        try:
            consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in by_place])
            end = time.monotonic() + SCAN_DEADLINE_S
            while left:
                missing = {key: sorted(some)[:3] for key, some in left.items()}
                assert time.monotonic() < end, f"{isolation}: did not come: {missing}"
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    assert error.code() in _PASSING, error
                    continue
                key = by_place[message.topic() or "", message.partition() or 0]
                record = ConsumedRecord(
                    message.offset() or 0, message.timestamp()[1], None, message.value(), ()
                )
                if not found[key] and key.topic == self._shortened and key in left:
                    left[key] = {each for each in left[key] if each >= record.offset}
                found[key].append(record)
                if key in left:
                    left[key].discard(record.offset)
                    if not left[key]:
                        del left[key]
        finally:
            consumer.close()
        return found

    def _consumer(self, isolation: Isolation) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                # A reset would hide a hole; only where retention is at work it is right.
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "client.rack": self._chance.choice(("", "a", "b")),
                "log_level": 0,
            }
        )

    def _wrong(self, key: LogKey, records: list[ConsumedRecord], isolation: Isolation) -> list[str]:
        if not records:
            return []
        offsets = [each.offset for each in records]
        back = [(one, other) for one, other in pairwise(offsets) if other <= one]
        found = [f"{key}: {len(back)} steps back or twice, first {back[:3]}"] if back else []
        first = offsets[0] if key.topic == self._shortened else 0
        log: Acknowledged = self._ledger.log(key)
        lines = contradictions(
            log,
            records,
            start=first,
            end=max(offsets) + 1,
            committed_only=isolation == "read_committed",
        )
        return found + [f"{key}: {line}" for line in lines]


_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN,  # a broker whose node or store is away; clients ask again
    }
)
"""Told to the application while nobody can be reached; the consumer goes on by itself."""
