"""Decides how much of a file that left a log between two scans was surely committed. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from rlm.local_log.hold_plan import HoldFacts, Unit

Proof = Callable[[Unit], int]
"""`committed_end` of a future unit."""


class NotCommittedError(Exception):
    """Nothing proves that the records of a future unit were ever committed."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(
            f"nothing shows that offsets {unit.base_offset} to {unit.next_base_offset - 1} were "
            "committed, and the replica is not on this disk, or its broker does not answer"
        )
        self.unit = unit


class NoRoomError(Exception):
    """The disk has no room for a copy of the committed `part` of a future unit."""

    def __init__(self, unit: Unit, part: Unit) -> None:
        super().__init__(
            f"offsets {part.base_offset} to {part.next_base_offset - 1} are to be copied, and "
            "the disk has not twice the room for that"
        )
        self.unit = unit


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The log when a file was last seen in it: its high watermark, -1 if unknown, and its epochs,
    empty if their copy is lost.
    """

    high_watermark: int
    epochs: Epochs


def committed_end(unit: Unit, facts: HoldFacts | None, seen: LastSeen, led: int | None) -> int:
    """The offset up to which (exclusive) the records of a file that was active when last seen, and
    has left its log since, were surely committed; the unit's base: none of them.

    Records above the high watermark of that time may have been cut off since, before retention
    removed the records that replaced them. Records below it may have been replaced in the file by
    an unclean election; the new ones are of a later epoch. `facts` None: there is no log to compare
    with. `led`: the epoch that this broker leads; None: it leads none.
    """
    if _is_committed(unit, facts, seen, led):
        return unit.next_base_offset
    return max(unit.base_offset, _seen_end(unit, seen), _live_end(unit, facts))


def _is_committed(unit: Unit, facts: HoldFacts | None, seen: LastSeen, led: int | None) -> bool:
    """True if all records of the unit were committed.

    An epoch has one leader: a log that continues in the unit's last epoch has the unit's records,
    and so has the log of the next epoch's leader, which followed in that epoch. A later epoch that
    begins in the log below the unit's end cut the unit off. The first epoch of a log or a lineage
    may really have begun lower, even below the unit's end: that it is the next one proves nothing.
    """
    end, last = unit.next_base_offset, unit.leader_epochs[-1].epoch
    if seen.high_watermark >= end and epoch_for_offset(seen.epochs, end - 1) in (None, last):
        return True
    if facts is None or not facts.segments:
        return False
    if epoch_for_offset(facts.checkpoint, max(end - 1, facts.segments[0].base_offset)) == last:
        return True
    is_cut = any(each.epoch > last and each.start_offset < end for each in facts.checkpoint)
    return led == last + 1 and not is_cut


def _seen_end(unit: Unit, seen: LastSeen) -> int:
    """The end of the records that the file had below the high watermark, and still has: up to the
    last offset that has the same epoch in both, and so comes from the same leader's log.
    """
    limit = min(seen.high_watermark, unit.next_base_offset)
    return shared_end(unit.leader_epochs, seen.epochs, limit)


def _live_end(unit: Unit, facts: HoldFacts | None) -> int:
    """The end of the unit's part in the epoch in which the log continues above the unit: later
    epochs of the unit were cut off.
    """
    if facts is None or not facts.segments:
        return -1
    start = facts.segments[0].base_offset
    goes_on = epoch_for_offset(facts.checkpoint, start)
    ends = (entry.start_offset for entry in unit.leader_epochs if entry.start_offset <= start)
    of_it = (at for at in ends if goes_on == epoch_for_offset(unit.leader_epochs, at - 1))
    return -1 if goes_on is None else max(of_it, default=-1)


def shared_end(one: Epochs, other: Epochs, limit: int) -> int:
    """The highest offset up to `limit` (exclusive) to which two logs are the same: the last offset
    below it has the same epoch in both, and so comes from the same leader's log. -1: there is none.
    """
    borders = (entry.start_offset for entry in (*one, *other))
    shared = (
        at
        for at in (limit, *borders)
        if at <= limit
        and (epoch := epoch_for_offset(one, at - 1)) is not None
        and epoch == epoch_for_offset(other, at - 1)
    )
    return max(shared, default=-1)
