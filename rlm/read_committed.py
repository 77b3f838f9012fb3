"""Which batches a reader of committed records may see.

A transaction stands in the transaction index of the segment that has its ABORT marker, which may be
many segments behind its records. A segment is copied once its transactions are decided, but the
decision may lie in a segment not copied yet. So what the tier's own indexes do not decide is not
given out: it ends before the first transaction that is open at the end of the tier (by the producer
snapshot of the last segment). Sources: Kafka's TransactionIndex and RemoteLogManager.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kafka_formats import producer_snapshot, transaction_index
from kafka_formats.errors import Conflict, NotFound, RetryLater
from kafka_formats.record_batch import BatchHeader
from kafka_formats.transaction_index import AbortedTransaction, collect
from rlm.read_request import IndexType, SegmentPiece, SegmentResolver
from rlm.segment_reader import SegmentReader

HOPS_MAX = 10_000
"""Transaction indexes looked into for one piece before the read gives up for now."""


class CommittedView:
    """What is known of the transactions of one piece; from `stable_end` on nothing is decided."""

    def __init__(self, aborted: Iterable[AbortedTransaction], stable_end: int) -> None:
        self.stable_end = stable_end
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for entry in sorted(set(aborted), key=lambda entry: entry.first_offset):
            span = (entry.first_offset, entry.last_offset)
            self._spans.setdefault(entry.producer_id, []).append(span)

    def drops(self, header: BatchHeader) -> bool:
        """True for control batches and batches of aborted transactions.

        A producer has one transaction at a time, so its spans are disjoint.
        """
        if header.is_control:
            return True
        spans = self._spans.get(header.producer_id)
        if not header.is_transactional or spans is None:
            return False
        at = bisect_right(spans, header.base_offset, key=lambda span: span[0]) - 1
        return at >= 0 and header.last_offset <= spans[at][1]


async def committed_view(
    reader: SegmentReader, resolver: SegmentResolver, piece: SegmentPiece, offset: int
) -> CommittedView:
    """Gather the aborted transactions that touch [offset, the piece's end].

    Conflict(TRANSACTIONS_UNKNOWN) when the tier cannot tell which are still open at its end.
    """
    # The last piece is asked for first: segments that arrive after this only add decisions.
    last = await resolver.last_piece()
    upper_bound = piece.valid_until + 1
    found: list[AbortedTransaction] = []
    at = offset
    for _ in range(HOPS_MAX):
        following = await resolver.next_with_txn_index(at)
        if following is None:
            return CommittedView(found, await _stable_end(reader, last or piece))
        data = await reader.index(following.segment, IndexType.TRANSACTION)
        entries = transaction_index.parse(data, source=str(following.segment.segment_id))
        # Markers above `valid_until` are a diverged tail's: they decide nothing in the lineage.
        in_lineage = (entry for entry in entries if entry.last_offset <= following.valid_until)
        touching, complete = collect(in_lineage, offset, upper_bound)
        found += touching
        if complete:
            return CommittedView(found, upper_bound)
        at = max(at, following.valid_until) + 1
    raise RetryLater(f"more than {HOPS_MAX} transaction indexes follow offset {offset}")


async def _stable_end(reader: SegmentReader, last: SegmentPiece) -> int:
    """The first offset whose transaction is not decided inside the tier."""
    end = last.segment.end_offset + 1
    if last.valid_until < last.segment.end_offset:
        raise _unknown(last, "ends outside the lineage")
    try:
        data = await reader.index(last.segment, IndexType.PRODUCER_SNAPSHOT)
    except NotFound:
        raise _unknown(last, "has no producer snapshot") from None
    producers = producer_snapshot.parse(data, source=str(last.segment.segment_id))
    open_from = producer_snapshot.first_unstable_offset(producers)
    return end if open_from is None else min(end, open_from)


def _unknown(last: SegmentPiece, why: str) -> Conflict:
    return Conflict(
        f"which transactions are open at the end of the tier is not known, since its last segment "
        f"{last.segment.segment_id} {why}: read with isolation read_uncommitted, or wait until the "
        "next segment is copied",
        reason="TRANSACTIONS_UNKNOWN",
    )
