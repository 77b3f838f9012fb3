"""Whether a leader's log start was moved by DeleteRecords. Pure.

Retention moves log start as well, and what it drops from the broker's disk has to stay in the tier.
What tells them apart: a leader's retention removes whole segments, so its log start is then the
base of one of its own segments (Kafka: `UnifiedLog.deleteSegments`, SegmentDeletion); within one
leader epoch only DeleteRecords (ClientRecordDeletion) puts it anywhere else. A follower takes over
the log start of its leader, whose segments end elsewhere: so nothing counts that was not seen to
move under one claim, in one leader epoch, in one directory (a replica that was moved to another log
directory has other segments; its directory is another inode).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlmm.partition_state import UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a leader. `log_start_offset` was heard before and after the directory was listed,
    and the broker led in `leader_epoch` before and after both: a listing that stands between two
    equal words has the segment that retention would have put log start on, in whichever order a
    version of Kafka renames files and raises its log start.

    `directory` is (device, inode); `bases` are the base offsets of its segments, ascending.
    """

    token: int
    leader_epoch: int
    directory: tuple[int, int]
    bases: Sequence[int]
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of a partition under one claim. `proven`: DeleteRecords went up to here, -1 for
    nowhere. `unproven`: the broker's log start where nothing proves it, -1 where all is explained.
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
    """A log start at the end of the active segment is inside, too: retention rolls it first."""
    at = look.log_start_offset
    return at not in look.bases and any(base < at for base in look.bases)
