"""Classifies listed objects, and bounds how many may be deleted. Pure.

Only the log decides: an object may go if the metadata, read after the listing, says that its
segment was deleted. Objects the log never knew are somebody else's, whatever their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlm.format.object_keys import ParsedSegmentKey, own_prefix, segment_keys
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


class ObjectClass(StrEnum):
    """The classes of objects. Values are stable: the HTTP interface has them."""

    LIVE = "live"
    COPY_PENDING = "copy_pending"
    DELETE_PENDING = "delete_pending"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    OWN = "own"


IN_THE_LOG = (
    ObjectClass.LIVE, ObjectClass.COPY_PENDING, ObjectClass.DELETE_PENDING, ObjectClass.ORPHAN,
)  # fmt: skip
"""Objects of segments that the log knows or knew; the brake counts these."""


@dataclass(frozen=True, slots=True)
class Known:
    """A segment's row and when its objects may go (ms since the epoch), or that it was deleted."""

    row: RemoteLogSegmentMetadata | None = None
    due_ms: int = 0
    deleted: bool = False


NEVER_KNOWN = Known()


def classify(
    key: str, parsed: ParsedSegmentKey | None, known: Known, *, prefix: str, now_ms: int
) -> ObjectClass:
    """`known` must be read after the listing: a copy begun since is not foreign. `parsed`: of
    `key`.
    """
    if key.startswith(own_prefix(prefix)):
        return ObjectClass.OWN
    if parsed is None:
        return ObjectClass.FOREIGN
    row = known.row
    if row is None:
        return ObjectClass.ORPHAN if known.deleted else ObjectClass.FOREIGN
    if key not in segment_keys(prefix, row.segment_id, row.start_offset).all():
        return ObjectClass.FOREIGN  # our id under another name: we never wrote that
    match row.state:
        case SegmentState.COPY_SEGMENT_FINISHED:
            return ObjectClass.LIVE
        case SegmentState.COPY_SEGMENT_STARTED:
            return ObjectClass.COPY_PENDING
        case _ if now_ms < known.due_ms:
            return ObjectClass.DELETE_PENDING
        case _:
            return ObjectClass.ORPHAN


def objects_allowed(in_the_log: int, max_percent: float, accepted: int) -> int:
    """Objects that one pass may remove of `in_the_log`, those of the log's segments. `accepted`:
    the number that the operator looked at and accepts.
    """
    return max(int(in_the_log * max_percent / 100), accepted)
