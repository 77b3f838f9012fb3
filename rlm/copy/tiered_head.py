"""Leader epochs below a broker's checkpoint that the tier's own segments prove. Pure.

The broker's retention cuts the head of its checkpoint, and an unclean election the same epochs of
the recorded lineage. If a second one makes the first history the partition's again, only segments
copied before still tell where its epochs begin: without them the lineage had another epoch there,
and retention deleted them as cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentMetadata, SegmentState


def tiered_head(
    checkpoint: Epochs,
    recorded: Epochs,
    segments: Callable[[int], Iterable[RemoteLogSegmentMetadata]],
) -> Epochs:
    """The checkpoint's first entry, from its epoch's known start on, and those below it; ascending.

    `segments` gives those that have an epoch, by start offset in it. An epoch has one leader, whose
    log up to that epoch all replicas share: so does whoever copied a segment with that epoch. Ends
    where the recorded lineage has an epoch from there on, or earlier: it has what is below, too.
    """
    starts, found = dict(recorded), list(checkpoint[:1])  # the lowest last
    while found:
        epoch, start = found[-1]
        known = _known_up_to(epoch, segments(epoch))
        if not known or known[-1].start_offset > start or known[0].start_offset >= start:
            break
        if starts.get(epoch, OFFSET_MAX) <= known[-1].start_offset:
            break
        found[-1:] = reversed(known)
    return tuple(reversed(found))


def _known_up_to(epoch: int, segments: Iterable[RemoteLogSegmentMetadata]) -> Epochs:
    """The entries of the lowest finished segment up to `epoch`."""
    for row in segments:
        if row.state is SegmentState.COPY_SEGMENT_FINISHED:
            return tuple(EpochEntry(*each) for each in row.leader_epochs if each[0] <= epoch)
    return ()
