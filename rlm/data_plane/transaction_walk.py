"""Finds the aborted transactions of a range of offsets, segment by segment. Pure.

An aborted transaction is listed in the transaction index of the segment with the ABORT marker,
perhaps many segments after the records; a COMMIT is in no index. So a transaction that is neither
listed nor open is committed, except if the marker may be in a lost range. After a hole a
transaction is still open only if the first segment proves it: its producer snapshot at the base (or
at its end) shows the same producer and first offset open, or its index lists the transaction. All
other transactions open before the hole are never decided: their records are dropped and counted,
and no reader waits for them. Nodes and Spark tasks both use this. Sources: Kafka's
TransactionIndex, ProducerStateManager and RemoteLogManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.transaction_index import AbortedTransaction, collect

NO_TRANSACTIONS: frozenset[OpenTransaction] = frozenset()


@dataclass(frozen=True, slots=True)
class SegmentTransactions:
    """The transactions of one segment, as far as it is served.

    `aborted` are those whose marker is in the served part. `open_at_base` are the transactions that
    are proven open at its start, empty without proof. `open_at_end` None: unknown.
    """

    aborted: tuple[AbortedTransaction, ...]
    open_at_base: frozenset[OpenTransaction] = NO_TRANSACTIONS
    open_at_end: frozenset[OpenTransaction] | None = None


@dataclass(frozen=True, slots=True)
class Undecided:
    """The transactions whose outcome is lost. If those open before the hole were not known,
    `all_but` is set: then all transactions but these are lost.
    """

    transactions: frozenset[OpenTransaction] = NO_TRANSACTIONS
    all_but: frozenset[OpenTransaction] | None = None

    def __bool__(self) -> bool:
        return bool(self.transactions) or self.all_but is not None

    def has(self, producer_id: int, offset: int) -> bool:
        """True if a transactional batch that begins at `offset` belongs to such a transaction."""
        if _among(self.transactions, producer_id, offset):
            return True
        return self.all_but is not None and not _among(self.all_but, producer_id, offset)


NOTHING_UNDECIDED = Undecided()


class TransactionWalk:
    """The walk for the offsets `first_offset` to `last_offset` (inclusive). Call `take` with the
    segment that serves them, then with the next ones in order, until `decided` or none is left.
    """

    def __init__(self, first_offset: int, last_offset: int) -> None:
        self._first_offset = first_offset
        self._last_offset = last_offset
        self.open: frozenset[OpenTransaction] | None = None
        """The transactions with records in the offsets that no taken segment ends; without producer
        snapshots they may be committed. None: unknown."""
        self._lost: set[OpenTransaction] = set()
        self._all_but: frozenset[OpenTransaction] | None = None
        self.aborted: list[AbortedTransaction] = []
        self.decided = False

    @property
    def undecided(self) -> Undecided:
        return Undecided(frozenset(self._lost), self._all_but)

    def take(self, segment: SegmentTransactions, *, behind_hole: bool = False) -> None:
        """Take the next segment. `behind_hole`: offsets are lost between the segment before and
        this one.
        """
        if behind_hole:
            self._cross_hole(segment)
        touching, complete = collect(segment.aborted, self._first_offset, self._last_offset + 1)
        self.aborted += touching
        if segment.open_at_end is not None:
            still = self._touching(segment.open_at_end)
            self.open = still if self.open is None else self.open & still
        elif self.open is not None:
            self.open -= _begun(touching)
        if complete or self.open == NO_TRANSACTIONS:
            self.open = NO_TRANSACTIONS
            self.decided = True

    def _cross_hole(self, segment: SegmentTransactions) -> None:
        proven = segment.open_at_base | _begun(segment.aborted)
        proven = self._touching(proven | (segment.open_at_end or NO_TRANSACTIONS))
        if self.open is None:
            self._all_but = proven
            self.open = proven
        else:
            self._lost |= self.open - proven
            self.open &= proven

    def _touching(self, transactions: Iterable[OpenTransaction]) -> frozenset[OpenTransaction]:
        return frozenset(each for each in transactions if each.first_offset <= self._last_offset)


def _begun(aborted: Iterable[AbortedTransaction]) -> frozenset[OpenTransaction]:
    return frozenset(OpenTransaction(each.producer_id, each.first_offset) for each in aborted)


def _among(transactions: Iterable[OpenTransaction], producer_id: int, offset: int) -> bool:
    return any(
        each.producer_id == producer_id and each.first_offset <= offset for each in transactions
    )
