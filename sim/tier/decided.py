"""Transactions of a log by Kafka's rules: a producer's records are decided by its next marker in
the same log, whatever markers other logs have. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafka_formats.producer_snapshot import ProducerState
from kafka_formats.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from sim.tier.replica import Batch


class Transaction(NamedTuple):
    """Records of a producer from offset `first` to its marker, None while it is open. `stable` is
    the last stable offset right behind the marker.
    """

    producer: int
    first: int
    marker: int | None
    is_aborted: bool
    stable: int


def transactions(log: Iterable[Batch]) -> Iterator[Transaction]:
    """The transactions with records in a log, in the order of their markers, then the open ones."""
    opened: dict[int, int] = {}
    for batch in log:
        if batch.producer < 0:
            continue
        if batch.aborted:  # a whole one
            stable = min(opened.values(), default=batch.last + 1)
            yield Transaction(batch.producer, batch.base, batch.last, True, stable)
        elif batch.marker is None:
            opened.setdefault(batch.producer, batch.base)
        else:
            first = opened.pop(batch.producer, None)
            if first is not None:
                stable = min(opened.values(), default=batch.last + 1)
                aborts = batch.marker == ABORT
                yield Transaction(batch.producer, first, batch.last, aborts, stable)
    for producer, first in opened.items():
        yield Transaction(producer, first, None, False, first)


ABORT, COMMIT = "ABORT", "COMMIT"


def aborted_within(log: Iterable[Batch], start: int) -> list[AbortedTransaction]:
    """The entries of a transaction index for the markers of a log from `start` on."""
    return [
        AbortedTransaction(each.producer, each.first, each.marker, each.stable)
        for each in transactions(log)
        if each.is_aborted and each.marker is not None and each.marker >= start
    ]


def opened(log: Iterable[Batch]) -> dict[int, int]:
    """Producers with an open transaction, and where each began."""
    return {each.producer: each.first for each in transactions(log) if each.marker is None}


def last_stable(log: Iterable[Batch], high_watermark: int) -> int:
    """The last stable offset: a marker above the high watermark decides nothing yet."""
    committed = (each for each in log if each.last < high_watermark)
    return min((high_watermark, *opened(committed).values()))


def producer_states(log: Iterable[Batch]) -> list[ProducerState]:
    """The producers behind a log, as a broker writes them into a snapshot."""
    last: dict[int, Batch] = {}
    kept = []
    for batch in log:
        if batch.producer >= 0:
            kept.append(batch)
            if batch.marker is None:
                last[batch.producer] = batch
    starts: Mapping[int, int] = opened(kept)
    return [
        ProducerState(
            producer, 0, batch.last, batch.last, batch.last - batch.base, batch.timestamp_ms, 0,
            starts.get(producer, -1),
        )
        for producer, batch in sorted(last.items())
    ]  # fmt: skip
