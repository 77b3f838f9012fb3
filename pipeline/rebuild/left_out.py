"""Why a segment of the bucket gets no row in a rebuilt snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Values stand in reports. What is left out stays in the bucket: to the new cluster it is
    unknown, and what the log never knew is never deleted.
    """

    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"
    DIVERGED = "diverged"
    IN_DOUBT = "in_doubt"
    OTHER_MANAGER = "other_manager"
    SECOND_COPY = "second_copy"
    ID_TWICE = "id_twice"
    TOPIC_ID_TWICE = "topic_id_twice"
    ASKED = "asked"


MEANING = {
    Reason.INCOMPLETE: "without a manifest, which is written last: an upload that never finished",
    Reason.DAMAGED: "the manifest cannot be read, or its objects are gone or have other lengths",
    Reason.DIVERGED: "copied by a leader whose offsets a later leader wrote anew",
    Reason.IN_DOUBT: "contradicts a later copy at an offset that no manifest tells; --accept-doubt",
    Reason.OTHER_MANAGER: "another RemoteStorageManager's, beside our own in one partition",
    Reason.SECOND_COPY: "the same segment is in a store that was named before",
    Reason.ID_TWICE: "its segment id is another partition's, too",
    Reason.TOPIC_ID_TWICE: "its topic id is that of another topic name, too",
    Reason.ASKED: "as asked by --leave-out",
}
"""For people."""

NEEDS_SOMEBODY = frozenset(
    {Reason.DAMAGED, Reason.IN_DOUBT, Reason.ID_TWICE, Reason.TOPIC_ID_TWICE}
)
"""With these a report is not `ok`: an only copy may be among them."""


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
