"""Restores the lineage of a lost cluster's claims from its copies. Pure.

Claims made since the snapshot are lost, and local retention removes the head of the broker's leader
epoch checkpoint, so the epochs between may exist only in the stores. The LEADER_EPOCH index of a
copy has the lineage of its claim up to the segment's end, and a manifest the epochs of its segment.
They are merged in the order of their epochs, as the lost claims were (`merge` in
`rlmm/lineage.py`), into a whole lineage before the first claim of the new cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs
from rlmm.lineage import filtered, merge
from rlmm.segment import RemoteLogSegmentMetadata


def authority(row: RemoteLogSegmentMetadata) -> tuple[int, int]:
    """The authority of a copy about the lineage, as a key to sort by: a copy with a higher last
    epoch has later elections, and with the same one the copy with the higher end has more.
    """
    return row.leader_epochs[-1][0], row.end_offset


def merge_told(recorded: Epochs, told: Iterable[Epochs]) -> Epochs:
    """The recorded lineage merged with those of copies, which are ordered by authority, the highest
    last.

    The recorded lineage is right up to its last epoch, but its head may be missing. A lineage that
    contradicts one of a higher authority is left out.
    """
    known = recorded
    for each in told:
        lineage = filtered(each)
        if not lineage:
            continue
        last = lineage[-1].epoch
        try:
            if known and last < known[-1].epoch:
                last = known[-1].epoch
                lineage = merge(lineage, known, leader_epoch=last, higher_epoch=True).epochs
            higher = not recorded or last > recorded[-1].epoch
            known = merge(known, lineage, leader_epoch=last, higher_epoch=higher).epochs
        except InvalidRequest:
            continue
    return known


def with_lost_claims(checkpoint: Epochs, lineage: Epochs) -> Epochs:
    """The broker's checkpoint for a claim, with `lineage` (of `merge_told`) below its first entry.

    If the two contradict each other, the checkpoint is returned unchanged: its entries are right.
    """
    if not lineage or not checkpoint:
        return checkpoint
    last = checkpoint[-1].epoch
    try:
        return merge(lineage, checkpoint, leader_epoch=last, higher_epoch=True).epochs
    except InvalidRequest:
        return checkpoint
