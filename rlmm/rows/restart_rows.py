"""The rows with which a new cluster begins from a snapshot, after its predecessor lost its quorum.
Pure.

All claims are void, and the row of the restart has the offset from which on records are the new
cluster's. Deletion marks are void too: one may have been undone after the snapshot, and its grace
may be over. So are expiry marks; a hold of retention stays. A deletion that had started goes on
once the reconciliation is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlmm.partition_state import UNKNOWN_OFFSET, Restart
from rlmm.rows import keys, values
from rlmm.rows.expiry import decode_expiry, encode_expiry
from rlmm.rows.keys import RowKind
from rlmm.rows.partitions import decode_partition, encode_partition
from rlmm.segment import PartitionDeleteState

_PARTITION = bytes((RowKind.PARTITION,))
_ADOPTED = bytes((RowKind.ADOPTED,))


def restarted(
    rows: Iterable[tuple[bytes, bytes]], *, end_offset: int
) -> Iterator[tuple[bytes, bytes]]:
    """The rows after the restart, in key order; `rows` are those of a snapshot of all records below
    `end_offset`. Rows of an earlier restart are dropped: partitions are adopted and reconciled
    anew.
    """
    written = False
    for key, value in rows:
        if key == keys.RESTART_KEY or key.startswith(_ADOPTED):
            continue
        if not written and key > keys.RESTART_KEY:
            written = True
            yield keys.RESTART_KEY, values.encode_restart(Restart(end_offset))
        if not key.startswith(keys.EXPIRY_PREFIX):
            yield key, _voided(value) if key.startswith(_PARTITION) else value
        elif (held := _without_marks(value)) is not None:
            yield key, held
    if not written:
        yield keys.RESTART_KEY, values.encode_restart(Restart(end_offset))


def _without_marks(value: bytes) -> bytes | None:
    """The row without its marks; None if it has no hold either."""
    topic, expiry = decode_expiry(value)
    return None if expiry.hold is None else encode_expiry(topic, replace(expiry, marks=()))


def _voided(value: bytes) -> bytes:
    row = decode_partition(value)
    void = row._replace(claim_voided=row.claim is not None, reset_stands=False, reset_cut_at=-1)
    if row.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED:
        # As after an undo; `delete_offset` stays, so that only an admin can mark it again.
        void = void._replace(
            delete_state=None,
            delete_marked_at_ms=UNKNOWN_OFFSET,
            delete_grace_ms=-1,
            delete_counts_from_ms=-1,
        )
    return encode_partition(void)
