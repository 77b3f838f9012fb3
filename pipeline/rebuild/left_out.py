"""The reasons for leaving a segment of the bucket out of a rebuilt snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """A reason; reports show its value. A segment left out stays in the bucket: it is unknown to
    the new cluster, which never deletes unknown segments.
    """

    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"
    DIVERGED = "diverged"
    IN_DOUBT = "in_doubt"
    SECOND_COPY = "second_copy"
    ID_TWICE = "id_twice"
    TOPIC_ID_TWICE = "topic_id_twice"
    ASKED = "asked"


MEANING = {
    Reason.INCOMPLETE: "without a manifest, which is written last: an upload that never finished",
    Reason.DAMAGED: "the manifest cannot be read, or its objects are gone or of different lengths",
    Reason.DIVERGED: "copied by a leader whose offsets a later leader replaced",
    Reason.IN_DOUBT: "contradicts a later copy, from an unknown offset on; see --accept-doubt",
    Reason.SECOND_COPY: "the same segment is in a store named before",
    Reason.ID_TWICE: "a different partition has the same segment id",
    Reason.TOPIC_ID_TWICE: "a different topic name has the same topic id",
    Reason.ASKED: "left out by --leave-out",
}
"""The reasons in words, for reports."""

NEEDS_SOMEBODY = frozenset(
    {Reason.DAMAGED, Reason.IN_DOUBT, Reason.ID_TWICE, Reason.TOPIC_ID_TWICE}
)
"""Reasons with which a report is not `ok`: the only copy of records may be left out."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One segment without a row. `size_bytes` of its `.log`, -1 if it has none."""

    reason: Reason
    store: str
    topic: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    why: str
