"""Leader epochs below a broker's checkpoint that the tier's own segments prove. Pure.

The broker's retention cuts the head of its checkpoint, and an unclean election the same epochs of
the recorded lineage. If a second one makes the first history the partition's again, only segments
copied before still tell where its epochs begin: without them the lineage had another epoch there,
and retention deleted them as cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


def tiered_head(
    checkpoint: Epochs, segments: Callable[[int], Iterable[RemoteLogSegmentMetadata]]
) -> Epochs:
    """Entries that belong below the checkpoint's first, or begin its epoch earlier; ascending.

    `segments` gives those that have an epoch, by start offset in it. An epoch has one leader, whose
    log up to that epoch all replicas share: so does whoever copied a segment with that epoch.
    """
    head: Epochs = ()
    while checkpoint:
        epoch, start = (head or checkpoint)[0]
        known = _known_up_to(epoch, segments(epoch))
        if not known or known[-1].start_offset > start or known[0].start_offset >= start:
            break
        head = (*known, *(each for each in head if each.epoch > epoch))
    return head


def _known_up_to(epoch: int, segments: Iterable[RemoteLogSegmentMetadata]) -> Epochs:
    """The entries of the lowest finished segment up to `epoch`."""
    for row in segments:
        if row.state is SegmentState.COPY_SEGMENT_FINISHED:
            return tuple(EpochEntry(*each) for each in row.leader_epochs if each[0] <= epoch)
    return ()
