"""The part of its broker's log that a claim describes, and the log by all claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlmm.segment import OFFSET_MAX
from sim.tier.replica import Batch


class Claimed(NamedTuple):
    """An accepted claim, and the first offset of its broker's log that it describes."""

    offset: int
    leader_epoch: int
    first_start: int


class _Open(NamedTuple):
    """Offsets that no later claim describes, and the highest epoch that they may have."""

    start: int
    end: int
    epoch_max: int


def claimed(
    offset: int, leader_epoch: int, checkpoint: Epochs, local_start: int, known: Epochs
) -> Claimed:
    """A claim describes its broker's log from the first file on, and from the first epoch on that
    was not `known`, or was and is missing now. A head that it repeats from the record says nothing
    about that log, and neither does an earlier start of a known epoch, which a held segment proves:
    an epoch starts at one offset, unless the log begins later.
    """
    begin = checkpoint[0].start_offset
    told, before = {each.epoch for each in checkpoint}, {each.epoch for each in known}
    news = (
        start
        for epoch, start in (*checkpoint, *known)
        if (epoch in told) != (epoch in before) and start >= begin
    )
    return Claimed(offset, leader_epoch, min((max(begin, local_start), *news)))


def log_of_claims(
    logs: Mapping[int, Sequence[Batch]], claims: Sequence[Claimed], *, comes_back: bool = True
) -> list[Batch]:
    """The log that claims tell of, as far as they do: each from its own begin on. Below it, an
    unclean leader had not what others wrote in epochs above its own there; what it wrote above
    theirs is in no lineage any more, where a claim tells of theirs again, unless not
    `comes_back`. `logs`: that of each leader epoch.
    """
    found: list[Batch] = []
    open_ = [_Open(0, OFFSET_MAX, claims[-1].leader_epoch)]
    for claim in reversed(claims):
        log, left = logs[claim.leader_epoch], list[_Open]()
        # A log start may lie inside a batch, whose epoch is the log's first all the same.
        ends = (each.epoch for each in log if claim.first_start <= each.last)
        first_epoch = next(ends, OFFSET_MAX)
        for start, end, epoch_max in open_:
            begin = min(end, max(start, claim.first_start))
            within = [each for each in log if begin <= each.base and each.last < end]
            found += [each for each in within if each.epoch <= epoch_max]
            cut = next((each.base for each in within if each.epoch > epoch_max), end)
            below = _Open(start, begin, min(epoch_max, first_epoch))
            above = _Open(cut, end if comes_back else cut, epoch_max)
            left += [each for each in (below, above) if each.start < each.end]
        open_ = left
    return sorted(found, key=lambda each: each.base)
