"""Classifies listed objects, and limits how many may be deleted. Pure.

Only the metadata log decides: an object may be deleted if the metadata, read after the listing, has
its segment as deleted. Objects whose segment the log never knew are foreign, whatever their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlm.format.object_keys import ParsedSegmentKey, own_prefix, segment_keys
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState


class ObjectClass(StrEnum):
    """The class of an object. The values are stable: they are part of the HTTP interface."""

    LIVE = "live"
    COPY_PENDING = "copy_pending"
    DELETE_PENDING = "delete_pending"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    OWN = "own"


IN_THE_LOG = (
    ObjectClass.LIVE, ObjectClass.COPY_PENDING, ObjectClass.DELETE_PENDING, ObjectClass.ORPHAN,
)  # fmt: skip
"""The classes of objects whose segment the log knows or knew, which the limit counts."""


@dataclass(frozen=True, slots=True)
class Known:
    """A segment's row and the time from which its objects may be deleted (ms since the epoch), or
    that it was deleted.
    """

    row: RemoteLogSegmentMetadata | None = None
    due_ms: int = 0
    deleted: bool = False


NEVER_KNOWN = Known()


def classify(
    key: str, parsed: ParsedSegmentKey | None, known: Known, *, prefix: str, now_ms: int
) -> ObjectClass:
    """The class of the object at `key`. `known` must be read after the listing, so that the objects
    of a copy that began meanwhile are not foreign. `parsed` is the parsed `key`, or None.
    """
    if key.startswith(own_prefix(prefix)):
        return ObjectClass.OWN
    if parsed is None:
        return ObjectClass.FOREIGN
    row = known.row
    if row is None:
        return ObjectClass.ORPHAN if known.deleted else ObjectClass.FOREIGN
    if key not in segment_keys(prefix, row.segment_id, row.start_offset).all():
        return ObjectClass.FOREIGN  # a known id with a different key, which Strandline never wrote
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
    """The number of objects that one pass may delete. `in_the_log` is the number of objects of the
    log's segments, `accepted` the number that the operator accepts.
    """
    return max(int(in_the_log * max_percent / 100), accepted)
