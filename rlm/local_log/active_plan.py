"""Decides what becomes of the links to active segments. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlm.local_log.hold_plan import HoldFacts, Unit, is_copied
from rlm.local_log.log_dir import LocalSegment


class Fate(Enum):
    """KEEP the link, DROP it, or make a unit of it (HOLD)."""

    KEEP = "keep"
    DROP = "drop"
    HOLD = "hold"


def to_link(facts: HoldFacts) -> LocalSegment | None:
    """The active segment, if it has records that the tier may want."""
    if facts.deleted or facts.left_out or not facts.segments or not facts.checkpoint:
        return None
    active = facts.segments[-1]
    return active if active.next_base_offset is None and active.size_bytes > 0 else None


def fate(
    facts: HoldFacts, base: int, epochs: Epochs, own: LocalSegment | None, held: Iterable[Unit]
) -> Fate:
    """The fate of a link to a file that began at `base`. `epochs`: the log's when the file was last
    seen in it; empty if they are lost. `own`: the broker's segment of that file; None: it has left
    the log. `held`: the partition's units.

    Only files that left at the head of the log were removed by retention: all others were cut off,
    or replaced by a file that the broker has. A leader without these records may have recorded a
    log start above them: their unit is made, so that its release is reported.
    """
    if facts.deleted:
        return Fate.DROP
    if own is not None:
        return Fate.KEEP if _waits(facts, own, held) else Fate.DROP
    if not facts.segments:
        return Fate.KEEP
    start = facts.segments[0].base_offset
    if base >= start:
        return Fate.DROP
    is_expired = base < facts.log_start_offset
    return Fate.DROP if _is_tiered(facts, base, start, epochs) and not is_expired else Fate.HOLD


def _waits(facts: HoldFacts, own: LocalSegment, held: Iterable[Unit]) -> bool:
    """True while the file is active, or sealed and neither held as a unit nor tiered."""
    base, end = own.base_offset, own.next_base_offset
    if end is None:
        return True
    if facts.left_out or _is_tiered(facts, base, end, facts.checkpoint):
        return False
    if facts.checkpoint and facts.checkpoint[0].start_offset >= end:
        return False  # DeleteRecords took all of it
    units = ((each.base_offset, each.next_base_offset, each.alone) for each in held)
    return (base, end, False) not in units


def _is_tiered(facts: HoldFacts, base: int, end: int, epochs: Epochs) -> bool:
    """True if the tier has, or had, all of [base, end) in these epochs: records that an older
    leader copied there, and that an unclean election cut off, are no copy of it. False without
    epochs, or if they begin above: only the file itself shows what it has.
    """
    if not epochs or epochs[0].start_offset >= end:
        return False
    return is_copied(facts, max(base, epochs[0].start_offset), end, epochs)
