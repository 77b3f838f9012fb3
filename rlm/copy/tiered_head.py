"""Leader epochs below a broker's checkpoint that the tier's own segments prove. Pure.

The broker's retention cuts the head of its checkpoint, and an unclean election cuts the same epochs
from the recorded lineage. If a second unclean election restores the first history, only segments
copied before still show where its epochs begin: without them the lineage would have a different
epoch there, and retention would delete these segments as cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlmm.lineage import epoch_slot
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


def tiered_head(
    checkpoint: Epochs,
    recorded: Epochs,
    segments: Callable[[int], Iterable[RemoteLogSegmentMetadata]],
) -> Epochs:
    """The checkpoint's first entry, with the lowest start known for its epoch, and the entries
    below it; ascending.

    `segments` gives the segments that have an epoch, by their start offset in it. An epoch has one
    leader, whose log up to that epoch all replicas share, and so does the replica from which a
    segment with that epoch was copied. The search ends at an epoch that the recorded lineage has
    from the same offset on, or from a lower one: it then has the epochs below too. Without
    `recorded` it goes on: a claim unseen here may cut that lineage before this one counts.
    """
    found = list(checkpoint[:1])  # the lowest last
    while found:
        epoch, start = found[-1]
        known = _known_up_to(epoch, segments(epoch))
        if not known or known[-1].start_offset > start or known[0].start_offset >= start:
            break
        slot = epoch_slot(recorded, epoch)
        if slot is not None and recorded[slot].start_offset <= known[-1].start_offset:
            break
        found[-1:] = reversed(known)
    return tuple(reversed(found))


def with_recorded_start(checkpoint: Epochs, recorded: Epochs) -> Epochs:
    """The checkpoint with its first epoch from where the recorded lineage has it, if lower.

    Claims are merged so, but one that was accepted meanwhile may have cut that epoch.
    """
    slot = epoch_slot(recorded, checkpoint[0].epoch) if checkpoint else None
    if slot is None or recorded[slot].start_offset >= checkpoint[0].start_offset:
        return checkpoint
    return (recorded[slot], *checkpoint[1:])


def _known_up_to(epoch: int, segments: Iterable[RemoteLogSegmentMetadata]) -> Epochs:
    """The entries of the lowest finished segment up to `epoch`."""
    for row in segments:
        if row.state is SegmentState.COPY_SEGMENT_FINISHED:
            return tuple(EpochEntry(*each) for each in row.leader_epochs if each[0] <= epoch)
    return ()
