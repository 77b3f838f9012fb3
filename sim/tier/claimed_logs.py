"""The part of its broker's log that a claim tells of."""

from __future__ import annotations

from typing import NamedTuple

from kafka_formats.leader_epoch_checkpoint import Epochs


class Claimed(NamedTuple):
    """An accepted claim, and where it begins to tell of its broker's log."""

    offset: int
    leader_epoch: int
    first_start: int


def claimed(
    offset: int, leader_epoch: int, checkpoint: Epochs, local_start: int, known: Epochs
) -> Claimed:
    """A claim tells of its broker's log from the first file on, and from the first epoch on that
    was not `known`, or is not there any more. A head that it repeats from the record is no word
    about that log, nor is an earlier start of a known epoch, which a held segment proves: an epoch
    starts at one offset, unless the log begins later.
    """
    begin = checkpoint[0].start_offset
    told, before = {each.epoch for each in checkpoint}, {each.epoch for each in known}
    news = (
        start
        for epoch, start in (*checkpoint, *known)
        if (epoch in told) != (epoch in before) and start >= begin
    )
    return Claimed(offset, leader_epoch, min((max(begin, local_start), *news)))
