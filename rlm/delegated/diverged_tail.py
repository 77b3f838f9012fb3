"""Cuts a segment, for the broker, where a later leader's history leaves it. Pure.

After an unclean election a copied segment may end with records that the new leader does not have.
The broker reads a segment to its end, whatever its leader epochs, so it would return them to
consumers as the partition's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats import leader_epoch_checkpoint, transaction_index
from kafka_formats.batch_scan import ScannedBatch
from kafka_formats.leader_epoch_checkpoint import Epochs, truncate_from_end
from rlmm.rows.coverage import epoch_ranges, ranges_in_lineage
from rlmm.segment import RemoteLogSegmentMetadata


def last_valid_offset(row: RemoteLogSegmentMetadata, lineage: Epochs) -> int | None:
    """The last offset of a segment that lies in the lineage; below its start if none does. None:
    the whole segment does. Epochs below the lineage's first one belong to a head that is no longer
    known.
    """
    if not lineage or row.leader_epochs[-1][0] < lineage[0].epoch:
        return None
    served = ranges_in_lineage(lineage, epoch_ranges(row))
    last = max((end for _, end in served), default=row.start_offset - 1)
    return None if last >= row.end_offset else last


def end_of_batches(batches: Iterable[ScannedBatch], last_valid: int) -> int | None:
    """The position after the last whole batch up to `last_valid` (inclusive); None: it lies after
    these batches.
    """
    for batch in batches:
        if batch.header.last_offset > last_valid:
            return batch.position
    return None


def epochs_until(checkpoint: bytes, last_valid: int) -> bytes:
    """A segment's leader epochs without those of its diverged tail."""
    epochs = leader_epoch_checkpoint.parse(checkpoint, source="the segment's leader epochs")
    return leader_epoch_checkpoint.encode(truncate_from_end(epochs, last_valid + 1))


def aborted_until(index: bytes, last_valid: int) -> bytes:
    """A segment's transaction index without the entries of its diverged tail: in the partition's
    own history those transactions may be committed, or end later.
    """
    entries = transaction_index.parse(index, source="the segment's transaction index")
    return transaction_index.encode(each for each in entries if each.last_offset <= last_valid)
