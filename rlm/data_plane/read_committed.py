"""Decides which batches a reader of committed records may see.

A segment is copied once its transactions are decided, but the markers may be in a later segment
that is not copied yet. So the read ends before the first transaction that is open at the end of the
tier. `rlm/data_plane/transaction_walk.py` has the rules, also for lost ranges.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.errors import Conflict, NotFound, RetryLater
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.record_batch import BatchHeader
from kafka_formats.transaction_index import AbortedTransaction
from rlm.data_plane.read_request import SegmentPiece, SegmentResolver
from rlm.data_plane.segment_reader import SegmentReader
from rlm.data_plane.transaction_walk import (
    NO_TRANSACTIONS,
    NOTHING_UNDECIDED,
    SegmentTransactions,
    TransactionWalk,
    Undecided,
)
from rlm.format.manifest import IndexType

HOPS_MAX = 10_000
"""Limit of the segments that are searched for the markers of one piece."""


class CommittedView:
    """The transactions of one piece; from offset `stable_end` on they are not decided.
    `undecided_records` counts records dropped because their transaction's marker is lost.
    """

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        stable_end: int,
        undecided: Undecided = NOTHING_UNDECIDED,
    ) -> None:
        self.stable_end = stable_end
        self.undecided_records = 0
        self._undecided = undecided
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for entry in sorted(set(aborted), key=lambda entry: entry.first_offset):
            span = (entry.first_offset, entry.last_offset)
            self._spans.setdefault(entry.producer_id, []).append(span)

    def drops(self, header: BatchHeader) -> bool:
        """True for control batches, batches of aborted transactions, and batches of transactions
        with a lost marker, whose records are counted. A producer has one transaction at a time, so
        its spans do not overlap.
        """
        if header.is_control:
            return True
        if not header.is_transactional:
            return False
        spans = self._spans.get(header.producer_id, ())
        at = bisect_right(spans, header.base_offset, key=lambda span: span[0]) - 1
        if at >= 0 and header.last_offset <= spans[at][1]:
            return True
        if self._undecided and self._undecided.has(header.producer_id, header.base_offset):
            self.undecided_records += header.record_count
            return True
        return False


class Decisions(NamedTuple):
    """A finished walk, and the last piece that it read."""

    walk: TransactionWalk
    last: SegmentPiece


async def committed_view(
    reader: SegmentReader, resolver: SegmentResolver, piece: SegmentPiece, offset: int
) -> CommittedView:
    """The outcomes of the transactions in [offset, the piece's end]. Raises
    Conflict(TRANSACTIONS_UNKNOWN) if the transactions open at the end of the tier are not known.
    """
    walk, last = await decisions(reader, resolver, piece, offset, piece.valid_until)
    return CommittedView(walk.aborted, _stable_end(walk, piece, last), walk.undecided)


async def decisions(
    reader: SegmentReader,
    resolver: SegmentResolver,
    piece: SegmentPiece,
    first_offset: int,
    last_offset: int,
) -> Decisions:
    """Follow the transactions in the offsets (inclusive) of a piece to their outcomes, or to the
    end of the tier. Raises RetryLater after HOPS_MAX segments.
    """
    walk = TransactionWalk(first_offset, last_offset)
    at, behind_hole = piece, False
    for _ in range(HOPS_MAX):
        walk.take(await _transactions(reader, at), behind_hole=behind_hole)
        following = None if walk.decided else await resolver.piece_at(at.valid_until + 1)
        behind_hole = following is not None and following.first_offset > at.valid_until + 1
        if not walk.decided and (following is None or behind_hole):
            # No later segment tells which transactions are open here.
            walk.take(SegmentTransactions((), open_at_end=await _open_at_cut(reader, at)))
        if following is None or walk.decided:
            return Decisions(walk, at)
        at = following
    raise RetryLater(
        f"more than {HOPS_MAX} segments do not decide the transactions after offset "
        f"{first_offset}: try again, or read with isolation read_uncommitted"
    )


async def _transactions(reader: SegmentReader, piece: SegmentPiece) -> SegmentTransactions:
    segment = piece.segment
    source = str(segment.segment_id)
    at_end = None
    if piece.valid_until >= segment.end_offset:
        with contextlib.suppress(NotFound):
            data = await reader.index(segment, IndexType.PRODUCER_SNAPSHOT)
            at_end = producer_snapshot.parse_open(data, source=source)
    aborted: tuple[AbortedTransaction, ...] = ()
    with contextlib.suppress(NotFound):
        data = await reader.index(segment, IndexType.TRANSACTION)
        entries = transaction_index.parse(data, source=source)
        # Markers above `valid_until` are of a diverged tail, and do not count in the lineage.
        aborted = tuple(entry for entry in entries if entry.last_offset <= piece.valid_until)
    at_base = NO_TRANSACTIONS
    if piece.first_offset <= segment.start_offset:
        at_base = await reader.open_at_base(segment) or NO_TRANSACTIONS
    return SegmentTransactions(aborted, at_base, at_end)


async def _open_at_cut(
    reader: SegmentReader, piece: SegmentPiece
) -> frozenset[OpenTransaction] | None:
    """The transactions open at the end of a piece that is cut; None if they are not known, or if
    the segment's own indexes tell.
    """
    if piece.valid_until >= piece.segment.end_offset:
        return None
    return await reader.open_at_cut(piece.segment, piece.valid_until)


def _stable_end(walk: TransactionWalk, piece: SegmentPiece, last: SegmentPiece) -> int:
    """The end (exclusive) of the piece's decided offsets: the first offset of the earliest
    transaction whose outcome is not in the tier.
    """
    if walk.open is None:
        raise _unknown(last)
    return min((each.first_offset for each in walk.open), default=piece.valid_until + 1)


def _unknown(last: SegmentPiece) -> Conflict:
    cut = last.valid_until < last.segment.end_offset
    why = "ends outside the lineage" if cut else "has no producer snapshot"
    return Conflict(
        f"the transactions that are open at the end of the tier are not known, since its last "
        f"segment {last.segment.segment_id} {why}: read with isolation read_uncommitted, or wait "
        "until the next segment is copied",
        reason="TRANSACTIONS_UNKNOWN",
    )
