"""What brokers acknowledged to a producer, and what became of its transaction."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.real.kafka_clients import ConsumedRecord

FILLER_REPEATS = 3


class LogKey(NamedTuple):
    """One partition of one life of a topic: `life` counts how often the name was created before."""

    topic: str
    life: int
    partition: int


@dataclass(slots=True)
class Acknowledged:
    """Number of the record by offset. `committed` and `aborted` are offsets whose transaction is
    known to have ended so; outside of transactions all is committed. The rest is undecided to us.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)


class Ledger:
    """Filled by the writer's thread, read by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[LogKey, Acknowledged] = {}

    def acknowledge(self, key: LogKey, offset: int, number: int) -> None:
        """The brokers have record `number` at `offset`."""
        with self._lock:
            numbers = self._logs.setdefault(key, Acknowledged()).numbers
            assert offset not in numbers, f"{key}: two records at offset {offset}"
            numbers[offset] = number

    def decide(self, records: list[tuple[LogKey, int]], *, committed: bool) -> None:
        """The transaction of `records` (key, offset) ended."""
        with self._lock:
            for key, offset in records:
                log = self._logs.setdefault(key, Acknowledged())
                (log.committed if committed else log.aborted).add(offset)

    def log(self, key: LogKey) -> Acknowledged:
        """A copy of what is known of one log."""
        with self._lock:
            log = self._logs.get(key, Acknowledged())
            return Acknowledged(dict(log.numbers), set(log.committed), set(log.aborted))

    def total(self) -> int:
        """Records acknowledged so far."""
        with self._lock:
            return sum(len(log.numbers) for log in self._logs.values())


def value_of(number: int) -> bytes:
    """The value of record `number`; no two are equal."""
    noise = hashlib.blake2b(str(number).encode()).digest()
    return b"%d:" % number + noise + b"the same again " * FILLER_REPEATS


def contradictions(
    log: Acknowledged, records: list[ConsumedRecord], *, start: int, end: int, committed_only: bool
) -> list[str]:
    """What is wrong with `records` as all that is readable in [start, end); empty is right."""
    found = {record.offset: record.value for record in records if start <= record.offset < end}
    expected = log.committed if committed_only else log.numbers.keys()
    missing = sorted(each for each in expected if start <= each < end and each not in found)
    wrong = [
        offset
        for offset, value in found.items()
        if offset in log.numbers and value != value_of(log.numbers[offset])
    ]
    undead = sorted(log.aborted & found.keys()) if committed_only else []
    told = (("missing", missing), ("wrong", wrong), ("aborted and yet read", undead))
    return [f"{len(some)} {what}, first {some[:5]}" for what, some in told if some]
