"""Finds indexes in a whole `.indexes` whose manifest, which has their ranges, is lost. Pure.

The leader epoch checkpoint is text, and its head has the number of its entries. The transaction
index is everything after it. The producer snapshot ends right before it, and has its own checksum.
Offset index and time index are not searched: a copy rebuilds them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafka_formats import leader_epoch_checkpoint, producer_snapshot, transaction_index
from kafka_formats.errors import CorruptData

_CHECKPOINT = re.compile(rb"(?=(0\n(\d{1,9})\n(?:\d+ \d+\n)+))")
_HEAD_LINES = 2
_SOURCE = ".indexes"


class UnnamedIndexes(NamedTuple):
    """The bytes of the producer snapshot, empty if there is none, and of the transaction index."""

    snapshot: bytes
    transactions: bytes


def unnamed_indexes(data: bytes) -> UnnamedIndexes | None:
    """The indexes, if there is exactly one way to read `data`; else None."""
    found = [
        (match.start(), data[match.end(1) :])
        for match in _CHECKPOINT.finditer(data)
        if _is_checkpoint(match[1], int(match[2])) and _is_transactions(data[match.end(1) :])
    ]
    if len(found) != 1:
        return None
    ((end, transactions),) = found
    snapshots = producer_snapshot.ending_at(data, end)
    if len(snapshots) > 1:
        return None
    return UnnamedIndexes(snapshots[0] if snapshots else b"", transactions)


def _is_checkpoint(text: bytes, entries: int) -> bool:
    if text.count(b"\n") != _HEAD_LINES + entries:
        return False
    try:
        leader_epoch_checkpoint.parse(text, source=_SOURCE)
    except CorruptData:
        return False
    return True


def _is_transactions(data: bytes) -> bool:
    try:
        transaction_index.parse(data, source=_SOURCE)
    except CorruptData:
        return False
    return True
