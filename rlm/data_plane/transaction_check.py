"""Compares the transactions in a segment's batches with its indexes. Pure.

A transaction that began in the segment, or that is open in the producer snapshot at the base, is
fully known, and its index entry must match. Without that snapshot, a transaction without an earlier
marker of its producer in the segment may have begun below it: an entry that says so is unverified,
and so is an ABORT without an entry, whose transaction may have no records. Kafka's cleaner may
remove the first batches of an aborted transaction but keep its entry: in a cleaned segment an entry
may begin where its producer has no batch any more, and have a lower last stable offset. Sources:
Kafka's ProducerStateManager, TransactionIndex, LogCleaner (CleanedTransactionMetadata).
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
    """An ABORT marker. `first`: the first offset of its transaction as far as known, None without
    batches. `seen`: its first batch in the segment. `low`: a lower bound of the first offset, None
    if it may be below the base. `at_base`: the snapshot at the base shows the transaction open.
    `stable_offset`: the last stable offset after the marker.
    """

    first: int | None
    seen: int | None
    low: int | None
    at_base: bool
    stable_offset: int


class TransactionCheck:
    """Takes the transactional batches and markers of a segment in order. `open_at_base` None: the
    transactions open at the base are unknown; with `shown_empty` a snapshot there has no producer,
    which may be wrong.
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
        """Take a transactional batch with records."""
        self._open.setdefault(producer_id, base_offset)
        self._seen.setdefault(producer_id, base_offset)

    def ends(self, producer_id: int, offset: int, *, aborted: bool) -> None:
        """Take a marker, ABORT if `aborted`, else COMMIT."""
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
        """Take a control batch whose marker and transaction Kafka's cleaner removed."""
        self._open.pop(producer_id, None)
        self._seen.pop(producer_id, None)
        self._behind_marker[producer_id] = offset + 1

    @property
    def open(self) -> frozenset[OpenTransaction]:
        """The transactions open after the last batch; if those at the base are unknown, only those
        that began in the segment.
        """
        return frozenset(OpenTransaction(*each) for each in self._open.items())

    def made(self) -> tuple[AbortedTransaction, ...] | None:
        """The entries that the segment's transaction index must have; None if they are not known
        for certain.
        """
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
        """The wrong and the missing entries of the index, a sentence each. `cleaned`: Kafka's
        cleaner has rewritten this segment.
        """
        listed = set()
        for entry in entries:
            key = (entry.producer_id, entry.last_offset)
            listed.add(key)
            abort = self._aborts.get(key)
            if abort is None:
                yield (
                    f"the transaction index has an ABORT of producer {entry.producer_id} at "
                    f"offset {entry.last_offset}, but the log has none there"
                )
                continue
            if not self._begins_right(entry.first_offset, entry.last_offset, abort, cleaned):
                where = "" if abort.first is None else f"; there it begins at {abort.first}"
                yield (
                    f"in the transaction index the transaction aborted at offset "
                    f"{entry.last_offset} begins at {entry.first_offset}, but in the log it does "
                    f"not{where}"
                )
            if not self._stable_right(entry.last_stable_offset, abort, cleaned):
                yield (
                    f"in the transaction index the last stable offset after the ABORT at offset "
                    f"{entry.last_offset} is {entry.last_stable_offset}, but it is "
                    f"{abort.stable_offset}"
                )
        for (producer_id, marker), abort in self._aborts.items():
            # An ABORT of a transaction without records is in no index.
            if abort.first is not None and (producer_id, marker) not in listed:
                yield (
                    f"the log has an ABORT of producer {producer_id} at offset {marker}, but the "
                    "transaction index does not have it, so its records look committed"
                )

    def unverified(self, entries: Iterable[AbortedTransaction]) -> int:
        """The number of ABORTs whose transaction may have begun below the base without proof: those
        whose entry says so, and those with neither an entry nor a batch.
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
        """The difference between `found`, the open transactions in a snapshot after the last batch,
        and the log, as a sentence; None if they agree.
        """
        told = dict(found)
        for producer_id in {*self._open, *told, *self._behind_marker}:
            first, says = self._open.get(producer_id), told.get(producer_id)
            if says == first or self._may_have_begun_below(producer_id, says):
                continue
            wanted = "none" if first is None else f"one that begins at {first}"
            shown = "none" if says is None else f"one that begins at {says}"
            return (
                f"as the open transaction of producer {producer_id} the producer snapshot has "
                f"{shown}, but the log has {wanted}"
            )
        return None

    def _may_have_begun_below(self, producer_id: int, says: int | None) -> bool:
        """True if the snapshot may be right: the transactions at the base are unknown, and the
        segment has no marker of the producer.
        """
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
        """True if an entry's last stable offset is right or may be lower. With a lower one readers
        search more segments; with a higher one they would stop too early.
        """
        if stable == abort.stable_offset:
            return True
        lower_is_right = cleaned or (not self.base_known and stable < self._start_offset)
        return lower_is_right and stable < abort.stable_offset
