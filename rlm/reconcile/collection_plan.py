"""What each object of a listing is, and how many may go. Pure.

Only the log decides: an object goes if the metadata, looked at after the object was listed, says
that its segment was deleted. What the log never knew is somebody else's, whatever its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlm.format.object_keys import ParsedSegmentKey, own_prefix, segment_keys
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


class ObjectClass(StrEnum):
    """What an object is. Values are stable: they stand in the HTTP interface."""

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
    """What the metadata says of a segment id: its row and when its objects may go (ms since the
    epoch), or that it was deleted to the end, or neither.
    """

    row: RemoteLogSegmentMetadata | None = None
    due_ms: int = 0
    deleted: bool = False


NEVER_KNOWN = Known()


def classify(
    key: str, parsed: ParsedSegmentKey | None, known: Known, *, prefix: str, now_ms: int
) -> ObjectClass:
    """`known` must have been looked up after `key` was listed: a copy that began since is not
    foreign. `parsed` is what the key says, None when it is no segment's.
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
    """How many objects one pass may remove, of `in_the_log` that are of segments of the log.
    `accepted` is what the operator looked at and wants gone; 0 for nothing.
    """
    return max(int(in_the_log * max_percent / 100), accepted)
