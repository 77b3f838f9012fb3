"""Finds transactions that were aborted or never decided, and the offset up to which the tier
decides them. The rule is a node's (`rlm/data_plane/transaction_walk.py`). Of the segments after its
own, a task gets only those that decide transactions: see `plan_slices`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.errors import Conflict, NotFound
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects
from pipeline.read.segment_slice import LATER_MAX, SegmentSlice
from rlm.data_plane.transaction_walk import NO_TRANSACTIONS, SegmentTransactions, TransactionWalk
from rlm.format.manifest import IndexType
from rlmm.segment import RemoteLogSegmentId

INDEXES_KEPT_MAX = 2 * LATER_MAX
REASON = "TRANSACTIONS_UNKNOWN"
log = logging.getLogger("strandline.read")


class TransactionIndexes:
    """The transaction indexes of a task's segments; the last few are kept for the next slice."""

    def __init__(self, stores: OpenStores, *, verify: bool = True) -> None:
        self._stores = stores
        self._verify = verify
        self._kept: OrderedDict[tuple[RemoteLogSegmentId, int, bool], SegmentTransactions] = (
            OrderedDict()
        )

    def walked(self, part: SegmentSlice, *, lost_ok: bool = False) -> TransactionWalk:
        """All aborted transactions that touch the slice, and those that can't be decided any more.
        `lost_ok`: a later segment that was deleted since the plan is a hole in the offsets.

        Conflict(TRANSACTIONS_UNKNOWN) if `LATER_MAX` segments do not have the ends of all. NotFound
        for a deleted segment.
        """
        try:
            return self._walked(part, around=False)
        except NotFound:
            if not lost_ok:
                raise
        return self._walked(part, around=True)

    def _walked(self, part: SegmentSlice, *, around: bool) -> TransactionWalk:
        """`around`: absent segments are skipped."""
        walk = TransactionWalk(part.first_offset, part.last_offset)
        # Transactions open at a segment's end matter only if their markers may be lost.
        holes = bool(part.behind_holes) or around
        passed = False
        for segment in (part.segment, *part.later):
            try:
                found = self._of(segment, snapshots=holes)
            except NotFound as error:
                if segment is part.segment or not around:
                    raise
                log.warning("the transactions that end in it are undecided: %s", error)
                passed = True
                continue
            behind_hole = segment is not part.segment and segment.first_offset in part.behind_holes
            walk.take(found, behind_hole=behind_hole or passed)
            passed = False
            if walk.decided:
                return walk
        if passed:
            walk.take(SegmentTransactions(()), behind_hole=True)
        if len(part.later) >= LATER_MAX:
            raise Conflict(
                f"the aborted transactions of segment {part.segment.segment_id} are unknown: the "
                f"next {LATER_MAX} segments with transactions do not end them all. Read it with "
                "isolation read_uncommitted",
                reason=REASON,
            )
        return walk

    def _of(self, segment: TieredSegment, *, snapshots: bool) -> SegmentTransactions:
        if not snapshots and segment.txn_index_empty:
            return SegmentTransactions(())
        key = (segment.segment_id, segment.first_offset, snapshots)
        found = self._kept.get(key)
        if found is None:
            objects = SegmentObjects(segment, self._stores, verify=self._verify)
            try:
                with objects.naming():
                    found = _read(segment, objects, snapshots=snapshots)
            except NotFound as error:
                raise objects.wrapped(error) from error
            self._kept[key] = found
            if len(self._kept) > INDEXES_KEPT_MAX:
                self._kept.popitem(last=False)
        return found


def _read(
    segment: TieredSegment, objects: SegmentObjects, *, snapshots: bool
) -> SegmentTransactions:
    source = objects.keys.indexes
    data = b"" if segment.txn_index_empty else objects.index(IndexType.TRANSACTION) or b""
    # Markers above `last_offset` belong to a diverged tail and decide nothing.
    aborted = tuple(
        entry
        for entry in transaction_index.parse(data, source=source)
        if entry.last_offset <= segment.last_offset
    )
    if not snapshots:
        return SegmentTransactions(aborted)
    sums = objects.manifest.checksums
    at_base, at_end = NO_TRANSACTIONS, None
    if sums is not None and segment.first_offset <= segment.start_offset:
        at_base = frozenset(sums.open_at_base or ())
    if segment.last_offset >= segment.end_offset:
        snapshot = objects.index(IndexType.PRODUCER_SNAPSHOT)
        if snapshot is not None:
            at_end = producer_snapshot.parse_open(snapshot, source=source)
    return SegmentTransactions(aborted, at_base, at_end)


def stable_end(segments: Sequence[TieredSegment], stores: OpenStores) -> int:
    """The end (exclusive) of the offsets that a reader of committed records may ask for.

    From there on transactions are open at the tier's end; their outcome is in segments that are not
    tiered yet. `segments` are those of one partition to its end, ascending.
    Conflict(TRANSACTIONS_UNKNOWN) if the last segment does not tell; NotFound if it is gone.
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
        f"the transactions open at the end of the tier are unknown, since the last segment "
        f"{last.segment_id} {why}: read with isolation read_uncommitted, or wait until the next "
        "segment is copied",
        reason=REASON,
    )
