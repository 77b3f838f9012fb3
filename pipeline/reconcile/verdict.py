"""Classifies each object, and each segment as a whole. Pure.

Objects are judged by the collector's own rule (`rlm/reconcile/collection_plan.py`); segments by
that of the node's reconciliation (`rlm/reconcile/reconciliation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import parse_segment_key
from rlm.reconcile.collection_plan import Known, ObjectClass, classify
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState


class SegmentClass(StrEnum):
    """A problem of a segment, in addition to its objects' classes. Reports show the values."""

    MISSING = "missing"
    UNFOUND = "unfound"
    INCOMPLETE = "incomplete"


MEANING = {
    ObjectClass.LIVE: "of segments that can be read: stay",
    ObjectClass.COPY_PENDING: "being copied: stay",
    ObjectClass.DELETE_PENDING: "being deleted, after its delay: stay",
    ObjectClass.ORPHAN: "of deleted segments: the collector may delete them",
    ObjectClass.FOREIGN: "never in the metadata: never touched",
    ObjectClass.OWN: "cluster marker and snapshots: stay",
    SegmentClass.MISSING: "finished in the metadata, but not complete in the bucket: DATA IS GONE",
    SegmentClass.UNFOUND: "finished in the metadata; the row names no store, and no store here has "
    "an object of it: name its bucket, too (--option strandline.store.NAME=...). Copies of a "
    "RemoteStorageManager other than Strandline's and Aiven's, such as Kafka's LocalTieredStorage, "
    "can't be compared. Else DATA IS GONE",
    SegmentClass.INCOMPLETE: "foreign, without all three objects: an upload that ended early",
}
"""The classes in words, for reports."""


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A row of the metadata, or a tombstone, as far as the class of an object needs it."""

    state: str
    start_offset: int
    due_ms: int


DELETED = "DELETED"
NEVER = "NEVER"


def object_class(key: str, prefix: str, known: KnownSegment | None, *, now_ms: int) -> ObjectClass:
    """The class of an object, by the metadata as read after the object was listed. The objects of
    one segment, whose keys differ only in their suffixes, have the same class.
    """
    parsed = parse_segment_key(prefix, key)
    if parsed is None or known is None or known.state == NEVER:
        return classify(key, parsed, Known(), prefix=prefix, now_ms=now_ms)
    if known.state == DELETED:
        return classify(key, parsed, Known(deleted=True), prefix=prefix, now_ms=now_ms)
    row = RemoteLogSegmentMetadata(
        parsed.segment_id, known.start_offset, known.start_offset, -1, -1, -1, (), 0, None,
        SegmentState[known.state],
    )  # fmt: skip
    return classify(key, parsed, Known(row, known.due_ms), prefix=prefix, now_ms=now_ms)


def segment_id_of(row: Mapping[str, Any]) -> RemoteLogSegmentId:
    """The segment id in the columns topic, topic_id, partition, segment_id."""
    partition = TopicIdPartition(row["topic"], Uuid.parse(row["topic_id"]), row["partition"])
    return RemoteLogSegmentId(partition, Uuid.parse(row["segment_id"]))
