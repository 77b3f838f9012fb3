"""Which transactions were aborted, and up to where the tier itself tells.

A transaction stands in the transaction index of the segment that has its ABORT marker, which may
lie behind the segments that have its records: so the indexes of later segments are looked into
(Kafka's RemoteLogManager.collectAbortedTransactionInfo). `rlm.read_committed` is the same for a
node, which asks its view for one segment after another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.errors import Conflict
from kafka_formats.transaction_index import AbortedTransaction, collect
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects
from pipeline.read.segment_slice import LATER_MAX, SegmentSlice
from rlm.read_request import IndexType
from rlmm.segment import RemoteLogSegmentId

INDEXES_KEPT_MAX = 2 * LATER_MAX
REASON = "TRANSACTIONS_UNKNOWN"


class TransactionIndexes:
    """Of the segments that a task reads; the last few are kept for the next slice."""

    def __init__(self, stores: OpenStores, *, verify: bool = True) -> None:
        self._stores = stores
        self._verify = verify
        self._kept: OrderedDict[RemoteLogSegmentId, tuple[AbortedTransaction, ...]] = OrderedDict()

    def aborted(self, part: SegmentSlice) -> list[AbortedTransaction]:
        """All aborted transactions that touch the slice.

        Conflict(TRANSACTIONS_UNKNOWN) when `LATER_MAX` segments do not hold the end of all.
        """
        found: list[AbortedTransaction] = []
        for segment in (part.segment, *part.later):
            if segment.txn_index_empty:
                continue
            # Markers above `last_offset` are a diverged tail's: they decide nothing.
            entries = (e for e in self._of(segment) if e.last_offset <= segment.last_offset)
            touching, complete = collect(entries, part.first_offset, part.last_offset + 1)
            found += touching
            if complete:
                return found
        if len(part.later) >= LATER_MAX:
            raise Conflict(
                f"which transactions of segment {part.segment.segment_id} were aborted is not told "
                f"by the {LATER_MAX} transaction indexes behind it: read it with isolation "
                "read_uncommitted",
                reason=REASON,
            )
        return found

    def _of(self, segment: TieredSegment) -> tuple[AbortedTransaction, ...]:
        entries = self._kept.get(segment.segment_id)
        if entries is None:
            objects = SegmentObjects(segment, self._stores, verify=self._verify)
            with objects.naming():
                data = objects.index(IndexType.TRANSACTION) or b""
                entries = transaction_index.parse(data, source=objects.keys.indexes)
            self._kept[segment.segment_id] = entries
            if len(self._kept) > INDEXES_KEPT_MAX:
                self._kept.popitem(last=False)
        return entries


def stable_end(segments: Sequence[TieredSegment], stores: OpenStores) -> int:
    """The first offset that a reader of committed records must not ask for (exclusive end).

    From there on transactions are open at the tier's end: whether they are committed is decided in
    segments that are not tiered yet. `segments` are those of one partition to its end, ascending.
    Conflict(TRANSACTIONS_UNKNOWN) if its last segment does not tell; NotFound if it is gone.
    """
    if not segments:
        return 0
    last = segments[-1]
    if last.last_offset < last.end_offset:
        raise _unknown(last, "ends outside the lineage")
    objects = SegmentObjects(last, stores)
    with objects.naming():
        data = objects.index(IndexType.PRODUCER_SNAPSHOT)
        if data is None:
            raise _unknown(last, "has no producer snapshot")
        producers = producer_snapshot.parse(data, source=objects.keys.indexes)
    open_from = producer_snapshot.first_unstable_offset(producers)
    end = last.last_offset + 1
    return end if open_from is None else min(end, open_from)


def _unknown(last: TieredSegment, why: str) -> Conflict:
    return Conflict(
        f"which transactions are open at the end of the tier is not known, since the last segment "
        f"{last.segment_id} {why}: read with isolation read_uncommitted, or wait until the next "
        "segment is copied",
        reason=REASON,
    )
