"""The lineage of leader epochs of a partition, and the segments that belong to it.

The view keeps it: local retention cuts the head of the broker's leader epoch checkpoint, so each
claim's checkpoint is merged into the recorded one. Source of `within_lineage`: Kafka's
RemoteLogManager.isRemoteSegmentWithinLeaderEpochs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_formats.errors import InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs, epoch_for_offset
from rlmm.segment import OFFSET_MAX

FIELD = "leader_epochs"


@dataclass(frozen=True, slots=True)
class MergedLineage:
    """`cut_at` is the lowest offset whose epoch has changed, None if none has.

    An epoch that begins after all offsets known before "cuts" where it begins, which changes
    nothing. New offsets below the known ones are a longer head, not a cut, unless their epoch is
    above all known ones: then they were written since.
    """

    epochs: Epochs
    cut_at: int | None


def filtered(lineage: Sequence[tuple[int, int]]) -> Epochs:
    """The lineage without epochs that have no record: those that start where the next starts."""
    kept: list[EpochEntry] = []
    for epoch, start in lineage:
        if kept and kept[-1].start_offset == start:
            kept.pop()
        kept.append(EpochEntry(epoch, start))
    return tuple(kept)


def ascending(lineage: Sequence[tuple[int, int]]) -> bool:
    """True if epochs ascend, start offsets never decrease, and no number is negative."""
    if lineage and (lineage[0][0] < 0 or lineage[0][1] < 0):
        return False
    return len(lineage) == 1 or all(
        before[0] < after[0] and before[1] <= after[1] for before, after in pairwise(lineage)
    )


def epoch_bounds(lineage: Epochs, epoch: int) -> tuple[int, int] | None:
    """(first, last) offset of an epoch in the lineage, inclusive; None if it is not in it. The
    first epoch has no lower bound, since only its known part begins later; the last has no upper
    bound.
    """
    slot = epoch_slot(lineage, epoch)
    if slot is None:
        return None
    first = lineage[slot].start_offset if slot else 0
    last = lineage[slot + 1].start_offset - 1 if slot + 1 < len(lineage) else OFFSET_MAX
    return first, last


def known_from(lineage: Epochs, offset: int) -> Epochs:
    """The lineage with its first epoch, which has no lower bound, from `offset` on."""
    if not lineage or lineage[0].start_offset <= offset:
        return lineage
    return (lineage[0]._replace(start_offset=offset), *lineage[1:])


def epoch_slot(lineage: Epochs, epoch: int) -> int | None:
    """The index of an epoch's entry; None if it is not in the lineage."""
    slot = bisect_left(lineage, epoch, key=_epoch)
    if slot == len(lineage) or lineage[slot].epoch != epoch:
        return None
    return slot


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def merge(
    current: Epochs, checkpoint: Epochs, *, leader_epoch: int, higher_epoch: bool
) -> MergedLineage:
    """The lineage after a claim at `leader_epoch` whose broker has `checkpoint`.

    Entries of `current` below the checkpoint's first are kept: the broker's head may be cut. For an
    epoch in both, the smaller start is kept: a cut head can only make a start too high. For all
    other offsets the checkpoint counts, which cuts the tail of `current` where the two differ. That
    takes `higher_epoch`, a claim above the epoch that formed `current`. InvalidRequest: a cut
    without it, or a result that would not ascend.
    """
    _check(checkpoint, leader_epoch)
    checkpoint = filtered(checkpoint)
    if not current:
        return MergedLineage(checkpoint, None)
    starts = dict(current)
    smaller = tuple(
        EpochEntry(epoch, min(start, starts.get(epoch, start))) for epoch, start in checkpoint
    )
    if not ascending(smaller):
        raise InvalidRequest(
            "an epoch would begin before the one below it: the checkpoint and the recorded lineage "
            f"{_text(current)} contradict each other; check the broker's log for corruption",
            field=FIELD,
        )
    first = smaller[0]
    kept = (
        entry
        for entry in current
        if entry.epoch < first.epoch and entry.start_offset < first.start_offset
    )
    merged = filtered((*kept, *smaller))
    cut_at = _first_difference(current, merged)
    if cut_at is not None and not higher_epoch:
        raise InvalidRequest(
            f"the checkpoint differs from the recorded lineage {_text(current)} at offset {cut_at}"
            f", and only a higher leader epoch than {leader_epoch} may change it there",
            field=FIELD,
        )
    return MergedLineage(merged, cut_at)


def _check(checkpoint: Epochs, leader_epoch: int) -> None:
    if not checkpoint:
        raise InvalidRequest("the leader epoch checkpoint has no entry", field=FIELD)
    if not ascending(checkpoint):
        raise InvalidRequest("epochs and start offsets must ascend from 0 on", field=FIELD)
    if checkpoint[-1].epoch != leader_epoch:
        raise InvalidRequest(
            f"the checkpoint's last epoch is {checkpoint[-1].epoch}, the claim's is {leader_epoch}:"
            " read the checkpoint again after the leadership change",
            field=FIELD,
        )


def _first_difference(before: Epochs, after: Epochs) -> int | None:
    """The lowest offset whose epoch differs; below `before` only a new epoch counts."""
    borders = {entry.start_offset for entry in (*before, *after)}
    for offset in sorted(borders):
        if offset < before[0].start_offset:
            epoch = epoch_for_offset(after, offset)
            if epoch is not None and epoch > before[-1].epoch:
                return offset
            continue
        if epoch_for_offset(before, offset) != epoch_for_offset(after, offset):
            return offset
    return None


def changed_ranges(before: Epochs, after: Epochs, first: int, last: int) -> list[tuple[int, int]]:
    """The ranges of [`first`, `last`] (inclusive) whose epoch in `after` is a different one."""
    borders = {entry.start_offset for entry in (*before, *after)}
    starts = sorted({first, *(each for each in borders if first < each <= last)})
    return [
        (start, following - 1)
        for start, following in pairwise((*starts, last + 1))
        if start < following and epoch_for_offset(before, start) != epoch_for_offset(after, start)
    ]


def _text(lineage: Epochs) -> str:
    shown = ", ".join(f"{epoch}:{start}" for epoch, start in lineage[-8:])
    return f"{{{'..., ' if len(lineage) > 8 else ''}{shown}}}"


def within_lineage(
    start: int,
    end: int,
    epochs: Sequence[tuple[int, int]],
    lineage: Epochs,
    log_end_offset: int | None,
) -> bool:
    """True if a segment [`start`, `end`] with these epochs belongs to the lineage's history.

    Epochs of the segment below the lineage's first are ignored (its head was cut). `log_end_offset`
    None: the end of the log is unknown and not checked.
    """
    inside = filtered(epochs)
    if not inside or not lineage or end < start:
        return False
    if log_end_offset is not None and end >= log_end_offset:
        return False
    known = [entry for entry in inside if entry.epoch >= lineage[0].epoch]
    if not known:
        return False
    slot = epoch_slot(lineage, known[0].epoch)
    if slot is None or (slot and known[0].start_offset < lineage[slot].start_offset):
        return False
    expected = lineage[slot : slot + len(known)]
    if tuple(known[1:]) != expected[1:] or known[-1].epoch != expected[-1].epoch:
        return False
    following = slot + len(known)
    return following >= len(lineage) or end < lineage[following].start_offset
