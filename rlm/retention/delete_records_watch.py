"""Decides if DeleteRecords moved a leader's log start. Pure.

Retention moves the log start as well, and the records that it deletes must stay in the tier. The
difference: a leader's retention removes whole segments, so its log start is the base offset of one
of its segments (Kafka: `UnifiedLog.deleteSegments`, SegmentDeletion); within one leader epoch only
DeleteRecords (ClientRecordDeletion) moves it elsewhere. A follower takes its leader's log start,
whose segments have different bounds. So only moves seen under one claim, in one leader epoch and
one directory count (a replica moved to a different log directory has different segments and a
different inode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlmm.partition_state import UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a leader. `log_start_offset` was the same before and after the directory was
    listed, and the broker led in `leader_epoch` both times. So the listing contains the segment to
    whose base retention would have moved the log start, in whichever order a version of Kafka
    renames files and raises the log start.

    `directory` is (device, inode); `bases` are the base offsets of its segments, ascending.
    """

    token: int
    leader_epoch: int
    directory: tuple[int, int]
    bases: Sequence[int]
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A partition under one claim. `proven`: DeleteRecords moved the log start to here, -1 if it
    did not. `unproven`: the broker's log start if its cause is unknown, else -1.
    """

    last: Look
    proven: int = UNKNOWN_OFFSET
    unproven: int = UNKNOWN_OFFSET


def watched(before: Watched | None, look: Look) -> Watched:
    """The partition after one more look; `before` is None at the first."""
    if before is None or not _goes_on(before.last, look):
        return Watched(look, unproven=look.log_start_offset)
    if look.log_start_offset <= before.last.log_start_offset:
        return replace(before, last=look)
    if _inside_a_segment(look):
        return Watched(look, proven=look.log_start_offset)
    return Watched(look, before.proven, unproven=look.log_start_offset)


def _goes_on(last: Look, look: Look) -> bool:
    return (last.token, last.leader_epoch, last.directory) == (
        look.token, look.leader_epoch, look.directory,
    ) and look.log_start_offset >= last.log_start_offset  # fmt: skip


def _inside_a_segment(look: Look) -> bool:
    """True also at the end of the active segment, which retention would roll first."""
    at = look.log_start_offset
    return at not in look.bases and any(base < at for base in look.bases)
