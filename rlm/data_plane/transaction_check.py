"""Compares a segment's transactions, as its batches show them, with its indexes. Pure.

A transaction that began in the segment, or that the producer snapshot at the base shows open, is
fully known, and its entry must match. Without that snapshot, a transaction without an earlier
marker of its producer in the segment may have begun below: an entry that says so is unverified, and
so is an ABORT without an entry, whose transaction may have no records. Kafka's cleaner may take the
first batches of an aborted transaction but keep its entry: in a cleaned segment an entry may begin
where none of its producer's batches is left, and name an earlier stable offset. Sources: Kafka's
ProducerStateManager, TransactionIndex, LogCleaner (CleanedTransactionMetadata).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.transaction_index import AbortedTransaction

_NONE: frozenset[OpenTransaction] = frozenset()


@dataclass(frozen=True, slots=True)
class _Abort:
    """An ABORT marker. `first`: the start of its transaction as far as known, None without batches.
    `seen`: its first batch in the segment. `low`: a lower bound of the start, None if it may be
    below the base. `at_base`: the snapshot at the base shows it open. `stable_offset`: the last
    stable offset behind the marker.
    """

    first: int | None
    seen: int | None
    low: int | None
    at_base: bool
    stable_offset: int


class TransactionCheck:
    """Takes the transactional and control batches of a segment in order. `open_at_base` None:
    unknown; with `shown_empty` a snapshot shows none, which may be wrong.
    """

    def __init__(
        self,
        start_offset: int,
        open_at_base: Iterable[OpenTransaction] | None = None,
        *,
        shown_empty: bool = False,
    ) -> None:
        self.base_known = open_at_base is not None
        self._shown_empty = shown_empty
        self._start_offset = start_offset
        # Producer id to first offset, ascending: later transactions are appended.
        by_first = sorted(open_at_base or _NONE, key=lambda each: each.first_offset)
        self._open: OrderedDict[int, int] = OrderedDict(
            (each.producer_id, each.first_offset) for each in by_first
        )
        self._at_base = frozenset(self._open)
        self._seen: dict[int, int] = {}
        self._behind_marker: dict[int, int] = {}
        self._aborts: dict[tuple[int, int], _Abort] = {}

    def has_batch(self, producer_id: int, base_offset: int) -> None:
        """Take a transactional batch with data."""
        self._open.setdefault(producer_id, base_offset)
        self._seen.setdefault(producer_id, base_offset)

    def ends(self, producer_id: int, offset: int, *, aborted: bool) -> None:
        """Take a marker."""
        first = self._open.pop(producer_id, None)
        seen = self._seen.pop(producer_id, None)
        if aborted:
            low: int | None = self._behind_marker.get(producer_id, self._start_offset)
            if not self.base_known and producer_id not in self._behind_marker:
                low = None
            self._aborts[producer_id, offset] = _Abort(
                first,
                seen,
                low,
                producer_id in self._at_base and producer_id not in self._behind_marker,
                next(iter(self._open.values()), offset + 1),
            )
        self._behind_marker[producer_id] = offset + 1

    def marker_gone(self, producer_id: int, offset: int) -> None:
        """Take a control batch whose marker, and the transaction before it, the cleaner removed."""
        self._open.pop(producer_id, None)
        self._seen.pop(producer_id, None)
        self._behind_marker[producer_id] = offset + 1

    @property
    def open(self) -> frozenset[OpenTransaction]:
        """Transactions open behind the last batch; those seen, if the base is unknown."""
        return frozenset(OpenTransaction(*each) for each in self._open.items())

    def made(self) -> tuple[AbortedTransaction, ...] | None:
        """The entries of the segment's index; None if they are not known for certain."""
        if not self.base_known and not (
            self._shown_empty and all(each.first is not None for each in self._aborts.values())
        ):
            return None
        return tuple(
            AbortedTransaction(producer_id, each.first, marker, each.stable_offset)
            for (producer_id, marker), each in self._aborts.items()
            if each.first is not None
        )

    def differences(
        self, entries: Sequence[AbortedTransaction], *, cleaned: bool = False
    ) -> Iterator[str]:
        """The faults of the index's entries, and its missing ones. `cleaned`: in this segment."""
        listed = set()
        for entry in entries:
            key = (entry.producer_id, entry.last_offset)
            listed.add(key)
            abort = self._aborts.get(key)
            if abort is None:
                yield (
                    f"the transaction index lists an ABORT of producer {entry.producer_id} at "
                    f"offset {entry.last_offset}, and the log has none there"
                )
                continue
            if not self._begins_right(entry.first_offset, entry.last_offset, abort, cleaned):
                where = "" if abort.first is None else f" but at {abort.first}"
                yield (
                    f"the transaction index says that the transaction aborted at offset "
                    f"{entry.last_offset} begins at {entry.first_offset}, and it does not{where}"
                )
            if not self._stable_right(entry.last_stable_offset, abort, cleaned):
                yield (
                    f"the transaction index says that behind the ABORT at offset "
                    f"{entry.last_offset} the last stable offset is {entry.last_stable_offset}, "
                    f"and it is {abort.stable_offset}"
                )
        for (producer_id, marker), abort in self._aborts.items():
            # An ABORT of a transaction without records is in no index.
            if abort.first is not None and (producer_id, marker) not in listed:
                yield (
                    f"the log has an ABORT of producer {producer_id} at offset {marker}, and the "
                    "transaction index does not list it: its records look committed"
                )

    def unverified(self, entries: Iterable[AbortedTransaction]) -> int:
        """The number of ABORTs that may end a transaction from below the base, where nothing proves
        it: those whose entry says so, and those with neither an entry nor a batch.
        """
        first_offsets = {
            (each.producer_id, each.last_offset): each.first_offset for each in entries
        }
        return sum(
            1
            for key, abort in self._aborts.items()
            if abort.low is None
            and (
                first_offsets[key] < self._start_offset
                if key in first_offsets
                else abort.first is None
            )
        )

    def open_differs(self, found: Iterable[OpenTransaction]) -> str | None:
        """The difference to the transactions shown open behind the last batch; None without one."""
        told = dict(found)
        for producer_id in {*self._open, *told, *self._behind_marker}:
            first, says = self._open.get(producer_id), told.get(producer_id)
            if says == first or self._may_have_begun_below(producer_id, says):
                continue
            wanted = "none" if first is None else f"one that begins at {first}"
            shown = "none" if says is None else f"one that begins at {says}"
            return (
                f"the producer snapshot shows of producer {producer_id} as its open transaction "
                f"{shown}, and the log has {wanted}"
            )
        return None

    def _may_have_begun_below(self, producer_id: int, says: int | None) -> bool:
        """True if a snapshot must be believed: base unknown, no marker of the producer here."""
        if self.base_known or producer_id in self._behind_marker or says is None:
            return False
        return says < self._start_offset

    def _begins_right(self, first: int, marker: int, abort: _Abort, cleaned: bool) -> bool:
        if first == abort.first:
            return True
        if abort.low is None and first < self._start_offset:
            return True  # unverified
        if not cleaned or abort.at_base:
            return False
        low = self._start_offset if abort.low is None else abort.low
        return low <= first <= (marker - 1 if abort.seen is None else abort.seen)

    def _stable_right(self, stable: int, abort: _Abort, cleaned: bool) -> bool:
        """A lower one costs a reader a look at more segments; a higher one ends it too early."""
        if stable == abort.stable_offset:
            return True
        lower_is_right = cleaned or (not self.base_known and stable < self._start_offset)
        return lower_is_right and stable < abort.stable_offset
