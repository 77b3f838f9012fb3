"""Decides which objects an erasure may delete, and whether their deletion was ordered. Pure.

An erasure itself orders no deletion: it needs a log start above its segments, or the deletion of
their partition. It deletes, with all versions that a store keeps, the objects of segments whose
deletion has finished by the log. Keys of segments with a row are not touched, whatever the row's
state. Keys that the log does not know are not touched either: the log keeps the ids of deleted
segments for 30 days, and an unknown object may be the last copy of its records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import ParsedSegmentKey, partition_prefix, topic_start
from rlm.reconcile.collection_plan import Known, ObjectClass, classify
from rlmm.partition_state import Mode, PartitionState
from rlmm.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of an erasure: a topic, or one of its partitions, or that partition's segments that
    end below the offset `before` (exclusive). `topic_id` None: all topics of this name.
    """

    topic: str
    topic_id: Uuid | None = None
    partition: int | None = None
    before: int | None = None

    def has(self, tip: TopicIdPartition) -> bool:
        """True if the partition is in the scope."""
        return (
            tip.topic == self.topic
            and self.topic_id in (None, tip.topic_id)
            and self.partition in (None, tip.partition)
        )

    def has_key(self, key: ParsedSegmentKey) -> bool:
        """True if the object's segment begins within the scope."""
        begins = self.before is None or key.start_offset < self.before
        return begins and self.has(key.segment_id.partition)

    def takes(self, row: RemoteLogSegmentMetadata) -> bool:
        """True if the whole segment is in the scope; its partition must be."""
        return self.before is None or row.end_offset < self.before

    def spans(self, row: RemoteLogSegmentMetadata) -> bool:
        """True if `before` is inside the segment."""
        return self.before is not None and row.start_offset < self.before <= row.end_offset

    def start_of_keys(self, prefix: str) -> str:
        """A prefix of all keys in the scope, and perhaps of other keys."""
        if self.topic_id is None:
            return topic_start(prefix, self.topic)
        if self.partition is None:
            return f"{topic_start(prefix, self.topic)}{self.topic_id}/"
        tip = TopicIdPartition(self.topic, self.topic_id, self.partition)
        return partition_prefix(prefix, tip)

    def __str__(self) -> str:
        """The scope's name in messages."""
        name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return name if self.before is None else f"{name} below offset {self.before}"


def why_not_ordered(scope: Scope, states: Iterable[PartitionState]) -> str | None:
    """The reason why the scope may not be erased yet; None if all of it is deleted, or is being."""
    for state in states:
        name = f"{state.partition.topic}-{state.partition.partition}"
        if state.delete_state is not None:
            continue
        if scope.before is None:
            return (
                f"{name} is not being deleted: delete the topic in Kafka, then mark its tiered "
                f"data, `strandline topics delete {scope.topic}`"
            )
        if state.mode is not Mode.SIDECAR:
            return (
                f"{name} is {state.mode.name}, so its broker decides what is deleted: delete the "
                "records there (kafka-delete-records), or the topic"
            )
        if state.log_start_offset < scope.before:
            return (
                f"the log start of {name} is {state.log_start_offset}: first move it to "
                f"{scope.before} with `strandline retention delete-records`"
            )
    return None


@dataclass(frozen=True, slots=True)
class Decided:
    """The class of a key in the scope. `takes`: it is deleted now; `will`: it is deleted with its
    segment.
    """

    class_: ObjectClass
    takes: bool
    will: bool


def decide(
    scope: Scope, key: str, parsed: ParsedSegmentKey | None, known: Known, *, prefix: str
) -> Decided | None:
    """The decision on a listed key; None if it is not in the scope. `known` must be read after the
    listing.
    """
    if parsed is None or not scope.has_key(parsed):
        return None
    # An object with a row is no orphan, however late it is: the clean-up deletes it.
    class_ = classify(key, parsed, known, prefix=prefix, now_ms=-1)
    takes = class_ is ObjectClass.ORPHAN and known.row is None and known.deleted
    if class_ is ObjectClass.ORPHAN and not takes:
        class_ = ObjectClass.DELETE_PENDING
    pending = known.row is not None and class_ is not ObjectClass.FOREIGN
    will = pending and known.row is not None and scope.takes(known.row)
    return Decided(class_, takes, will)
