"""Which transactions of a range of offsets were aborted, walked from segment to segment. Pure.

A transaction stands in the transaction index of the segment that has its ABORT marker, which may be
many segments behind its records, and a COMMIT stands in none: what is neither listed nor open is
committed. That ends where offsets are lost, since the marker may have been among them. So behind a
hole a transaction goes on only if its first segment proves it: the producer snapshot at its base
(or at its end) still has the same producer and first offset open, or its index lists that very
transaction. Every other one that was open before the hole is never decided: its records are left
out and counted, not waited for. Nodes and Spark tasks take their steps here. Sources: Kafka's
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
    """What the indexes of one segment tell, as far as the segment is served.

    `aborted`: those whose marker lies in the part that is served. `open_at_base` is what is proven
    to be open where that part begins; without proof it is empty. `open_at_end` None: not known.
    """

    aborted: tuple[AbortedTransaction, ...]
    open_at_base: frozenset[OpenTransaction] = NO_TRANSACTIONS
    open_at_end: frozenset[OpenTransaction] | None = None


@dataclass(frozen=True, slots=True)
class Undecided:
    """Transactions whose outcome is lost: `transactions`, each from its first offset on, and with
    `all_but` every transaction but these (where not even what was open is known).
    """

    transactions: frozenset[OpenTransaction] = NO_TRANSACTIONS
    all_but: frozenset[OpenTransaction] | None = None

    def __bool__(self) -> bool:
        return bool(self.transactions) or self.all_but is not None

    def has(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional batch that begins at `offset` is of one of them."""
        if _among(self.transactions, producer_id, offset):
            return True
        return self.all_but is not None and not _among(self.all_but, producer_id, offset)


NOTHING_UNDECIDED = Undecided()


class TransactionWalk:
    """Of the offsets `first_offset` to `last_offset`, inclusive: take the segment that serves them,
    then those behind it in their order, until `decided` or none is left.
    """

    def __init__(self, first_offset: int, last_offset: int) -> None:
        self._first_offset = first_offset
        self._last_offset = last_offset
        self._open: frozenset[OpenTransaction] | None = None  # None: not known
        self._lost: set[OpenTransaction] = set()
        self._all_but: frozenset[OpenTransaction] | None = None
        self.aborted: list[AbortedTransaction] = []
        self.decided = False

    @property
    def open(self) -> frozenset[OpenTransaction] | None:
        """Those that the segments taken do not end, as far as they touch the offsets; some may be
        committed where snapshots were left out. None: not known.
        """
        return self._open

    @property
    def undecided(self) -> Undecided:
        """What will never be decided."""
        return Undecided(frozenset(self._lost), self._all_but)

    def take(self, segment: SegmentTransactions, *, behind_hole: bool = False) -> None:
        """`behind_hole`: offsets are lost between the segment taken before and this one."""
        if behind_hole:
            self._cross_hole(segment)
        touching, complete = collect(segment.aborted, self._first_offset, self._last_offset + 1)
        self.aborted += touching
        if segment.open_at_end is not None:
            still = self._touching(segment.open_at_end)
            self._open = still if self._open is None else self._open & still
        elif self._open is not None:
            self._open -= _begun(touching)
        if complete or self._open == NO_TRANSACTIONS:
            self._open = NO_TRANSACTIONS
            self.decided = True

    def _cross_hole(self, segment: SegmentTransactions) -> None:
        proven = segment.open_at_base | _begun(segment.aborted)
        proven = self._touching(proven | (segment.open_at_end or NO_TRANSACTIONS))
        if self._open is None:
            self._all_but = proven
            self._open = proven
        else:
            self._lost |= self._open - proven
            self._open &= proven

    def _touching(self, transactions: Iterable[OpenTransaction]) -> frozenset[OpenTransaction]:
        return frozenset(each for each in transactions if each.first_offset <= self._last_offset)


def _begun(aborted: Iterable[AbortedTransaction]) -> frozenset[OpenTransaction]:
    return frozenset(OpenTransaction(each.producer_id, each.first_offset) for each in aborted)


def _among(transactions: Iterable[OpenTransaction], producer_id: int, offset: int) -> bool:
    return any(
        each.producer_id == producer_id and each.first_offset <= offset for each in transactions
    )
