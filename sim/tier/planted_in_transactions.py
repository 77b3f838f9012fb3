"""Planted bugs about readers of committed records, and about topics that are asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, cast

import rlm.data_plane.read_committed
import rlm.delegated.segment_reads
from kafka_formats import transaction_index
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.read_request import SegmentPiece
from rlm.data_plane.segment_reader import SegmentReader
from rlm.data_plane.transaction_walk import SegmentTransactions, TransactionWalk
from rlm.format.manifest import IndexType
from rlmm.view.partition_states import PartitionStates
from sim.ground.planting import Patches, planting

TRANSACTIONS_SEEDS_MAX = 40

_transactions = rlm.data_plane.read_committed._transactions
_cross_hole = TransactionWalk._cross_hole


async def _with_the_tail(reader: SegmentReader, piece: SegmentPiece) -> SegmentTransactions:
    found = await _transactions(reader, piece)
    whole = replace(piece, valid_until=piece.segment.end_offset)
    return replace(found, aborted=(await _transactions(reader, whole)).aborted)


def _forget_the_open(walk: TransactionWalk, segment: SegmentTransactions) -> None:
    lost = set(walk._lost)
    _cross_hole(walk, segment)
    walk._lost = lost


def _begun_until(index: bytes, last_valid: int) -> bytes:
    entries = transaction_index.parse(index, source="the segment's transaction index")
    return transaction_index.encode(each for each in entries if each.first_offset <= last_valid)


def _keep_the_newest(
    states: PartitionStates, partitions: Iterable[TopicIdPartition], before: int
) -> None:
    if states._true_at != before:
        states._forget()
    for partition in partitions:
        states._states.pop(partition, None)
    states._true_at = states._view.applied_offset


_UNTIL = {**rlm.delegated.segment_reads._UNTIL, IndexType.TRANSACTION: _begun_until}

BUGS_OF_TRANSACTIONS: dict[str, Patches] = {
    "an ABORT marker of a cut tail decides": (
        (rlm.data_plane.read_committed, "_transactions", _with_the_tail),
    ),
    "a transaction over a lost range is committed": (
        (TransactionWalk, "_cross_hole", _forget_the_open),
    ),
}
"""Bugs found by seeds of a world of transactions."""
BUGS_OF_CONSUMERS: dict[str, Patches] = {
    "what a cut tail aborts reaches consumers": (
        (rlm.delegated.segment_reads, "_UNTIL", cast(Callable[..., Any], _UNTIL)),
    ),
}
"""Bugs found by seeds of such a world whose brokers tier by themselves."""
BUGS_OF_NAMES: dict[str, Patches] = {
    "the newest topic of a name stays": ((PartitionStates, "committed", _keep_the_newest),),
}
"""Bugs found by seeds of any world where topics are made again."""


def planted_in_transactions(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting({**BUGS_OF_TRANSACTIONS, **BUGS_OF_CONSUMERS, **BUGS_OF_NAMES}[name])
