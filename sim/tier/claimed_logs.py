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
    about that log.
    """
    begin = checkpoint[0].start_offset
    news = (start for _, start in {*checkpoint} ^ {*known} if start >= begin)
    return Claimed(offset, leader_epoch, min((max(begin, local_start), *news)))
