"""Finds transactions that were aborted or never decided, and the offset up to which the tier
decides them. The rule is a node's (`rlm/data_plane/transaction_walk.py`). Of the segments after its
own, a task gets only those that decide transactions: see `plan_slices`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.errors import Conflict, NotFound
from kafka_formats.producer_snapshot import OpenTransaction
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects
from pipeline.read.segment_slice import LATER_MAX, SegmentSlice
from rlm.data_plane.transaction_batches import OpenAtCut
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
    at_base, at_end = NO_TRANSACTIONS, None
    if segment.first_offset <= segment.start_offset:
        at_base = frozenset(objects.manifest.open_at_base or ())
    if segment.last_offset < segment.end_offset:
        at_end = _open_at_cut(segment, objects)
    elif (snapshot := objects.index(IndexType.PRODUCER_SNAPSHOT)) is not None:
        at_end = producer_snapshot.parse_open(snapshot, source=source)
    return SegmentTransactions(aborted, at_base, at_end)


def _open_at_cut(
    segment: TieredSegment, objects: SegmentObjects
) -> frozenset[OpenTransaction] | None:
    """The transactions open after the last served offset of a segment that the lineage cuts there,
    from its batches; None if its manifest does not tell those open at its base, or batches are
    missing.
    """
    manifest = objects.manifest
    at_base = manifest.open_at_base
    if at_base is None:
        return None
    cut = OpenAtCut(segment.start_offset, at_base, segment.last_offset, objects.keys.log)
    with closing(objects.log(0, manifest.log_bytes)) as pieces:
        for piece in pieces:
            cut.feed(piece)
            if cut.is_reached:
                break
    return cut.open


def stable_end(segments: Sequence[TieredSegment], stores: OpenStores) -> int:
    """The end (exclusive) of the offsets that a reader of committed records may ask for.

    From there on transactions are open at the tier's end; their outcome is in segments that are not
    tiered yet. `segments` are those of one partition to its end, ascending.
    Conflict(TRANSACTIONS_UNKNOWN) if the last segment does not tell; NotFound if it is gone.
    """
    if not segments:
        return 0
    last = segments[-1]
    objects = SegmentObjects(last, stores)
    with objects.naming():
        if last.last_offset < last.end_offset:
            opened = _open_at_cut(last, objects)
            if opened is None:
                raise _unknown(last, "ends outside the lineage")
        else:
            data = objects.index(IndexType.PRODUCER_SNAPSHOT)
            if data is None:
                raise _unknown(last, "has no producer snapshot")
            opened = producer_snapshot.parse_open(data, source=objects.keys.indexes)
    return min((each.first_offset for each in opened), default=last.last_offset + 1)


def _unknown(last: TieredSegment, why: str) -> Conflict:
    return Conflict(
        f"the transactions open at the end of the tier are unknown, since the last segment "
        f"{last.segment_id} {why}: read with isolation read_uncommitted, or wait until the next "
        "segment is copied",
        reason=REASON,
    )
