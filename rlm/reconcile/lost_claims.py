"""The lineage that the claims of a lost cluster had made, as far as its copies tell it. Pure.

Claims made since the snapshot are lost, and local retention cuts the head of the broker's leader
epoch checkpoint, so the epochs in between may be known to the store alone. The LEADER_EPOCH index
of a copy is the lineage of its claim up to the segment's end, and a manifest has the epochs of its
segment. Merged in the order of their epochs, like the claims that are lost (`merge` in
`rlmm/lineage.py`), they make the recorded lineage whole before the first claim of the new cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import Epochs
from rlmm.lineage import filtered, merge
from rlmm.segment import RemoteLogSegmentMetadata


def authority(row: RemoteLogSegmentMetadata) -> tuple[int, int]:
    """The order of belief, highest last: a copy under a higher epoch knows of later elections, and
    under the same one the copy that reaches further knows more.
    """
    return row.leader_epochs[-1][0], row.end_offset


def merge_told(recorded: Epochs, told: Iterable[Epochs]) -> Epochs:
    """The recorded lineage with those that copies tell, the most believed last.

    The recorded one is right up to its last epoch, but for a head that was cut. A lineage that
    contradicts what is more believed is passed over.
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

    The checkpoint as it is, where the two contradict each other: it is right where it speaks.
    """
    if not lineage or not checkpoint:
        return checkpoint
    last = checkpoint[-1].epoch
    try:
        return merge(lineage, checkpoint, leader_epoch=last, higher_epoch=True).epochs
    except InvalidRequest:
        return checkpoint
