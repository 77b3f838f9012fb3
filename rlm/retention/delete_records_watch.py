"""Decides if DeleteRecords moved a leader's log start. Pure.

Retention moves log start as well, and the records it drops must stay in the tier. The difference: a
leader's retention removes whole segments, so its log start is the base of one of its segments
(Kafka: `UnifiedLog.deleteSegments`, SegmentDeletion); within one leader epoch only DeleteRecords
(ClientRecordDeletion) puts it elsewhere. A follower takes over its leader's log start, whose
segments end elsewhere. So only moves seen under one claim, in one leader epoch and one directory
count (a replica moved to another log directory has other segments and another inode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlmm.partition_state import UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a leader. `log_start_offset` was the same before and after the directory was
    listed, and the broker led in `leader_epoch` around both. So the listing has the segment at
    which retention would have put log start, whatever order a version of Kafka renames files and
    raises log start in.

    `directory` is (device, inode); `bases` are the base offsets of its segments, ascending.
    """

    token: int
    leader_epoch: int
    directory: tuple[int, int]
    bases: Sequence[int]
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A partition under one claim. `proven`: DeleteRecords went up to here, -1 for nowhere.
    `unproven`: the broker's log start if nothing explains it, else -1.
    """

    last: Look
    proven: int = UNKNOWN_OFFSET
    unproven: int = UNKNOWN_OFFSET


def watched(before: Watched | None, look: Look) -> Watched:
    """`before` with one more look."""
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
    """True also at the end of the active segment: retention rolls that first."""
    at = look.log_start_offset
    return at not in look.bases and any(base < at for base in look.bases)
