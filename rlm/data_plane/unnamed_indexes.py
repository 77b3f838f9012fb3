"""Finds indexes in a whole `.indexes` whose manifest, which has their places, is lost. Pure.

The epoch checkpoint is text, whose first lines say how much of it there is. The transaction index
is all that follows it, the producer snapshot ends before it, and has a checksum of its own. Offset
and time index are not looked for: a copy makes them anew.
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
    """The bytes of both indexes; `snapshot` is empty if there is none."""

    snapshot: bytes
    transactions: bytes


def unnamed_indexes(data: bytes) -> UnnamedIndexes | None:
    """The indexes, if `data` can be read in one way only; None if in none or several."""
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
