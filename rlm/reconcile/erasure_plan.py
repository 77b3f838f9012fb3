"""Decides which objects an erasure may take, and whether it was ordered. Pure.

An erasure orders nothing: the log start has passed its segments, or their partition is being
deleted. It takes, with all versions that a store keeps, what the log says is deleted to the end. No
key of a segment with a row is touched, whatever the row's state; nor is a key that the log does not
know: the log keeps the ids of deleted segments for 30 days, and before that nobody can tell such an
object from the last copy of something.
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
    """Everything of a topic, or of one partition of it, or what ends below the offset `before`
    (exclusive) there. `topic_id` None: of all topics of this name.
    """

    topic: str
    topic_id: Uuid | None = None
    partition: int | None = None
    before: int | None = None

    def has(self, tip: TopicIdPartition) -> bool:
        """True for a partition of the scope."""
        return (
            tip.topic == self.topic
            and self.topic_id in (None, tip.topic_id)
            and self.partition in (None, tip.partition)
        )

    def has_key(self, key: ParsedSegmentKey) -> bool:
        """True for an object of a segment that begins within the scope."""
        begins = self.before is None or key.start_offset < self.before
        return begins and self.has(key.segment_id.partition)

    def takes(self, row: RemoteLogSegmentMetadata) -> bool:
        """True for a segment that lies in the scope as a whole."""
        return self.before is None or row.end_offset < self.before

    def spans(self, row: RemoteLogSegmentMetadata) -> bool:
        """True for a segment that `before` lies in."""
        return self.before is not None and row.start_offset < self.before <= row.end_offset

    def start_of_keys(self, prefix: str) -> str:
        """The start of the keys of everything in the scope, and perhaps of more."""
        if self.topic_id is None:
            return topic_start(prefix, self.topic)
        if self.partition is None:
            return f"{topic_start(prefix, self.topic)}{self.topic_id}/"
        tip = TopicIdPartition(self.topic, self.topic_id, self.partition)
        return partition_prefix(prefix, tip)

    def __str__(self) -> str:
        """The scope as messages name it."""
        name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return name if self.before is None else f"{name} below offset {self.before}"


def why_not_ordered(scope: Scope, states: Iterable[PartitionState]) -> str | None:
    """The reason why nothing may be erased yet; None: all of it is going already, or gone."""
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
                f"{name} is {state.mode.name}: its broker decides what goes. Delete the records "
                "there, kafka-delete-records, or the topic"
            )
        if state.log_start_offset < scope.before:
            return (
                f"the log start of {name} is {state.log_start_offset}: move it to {scope.before} "
                "first, `strandline retention delete-records`"
            )
    return None


@dataclass(frozen=True, slots=True)
class Decided:
    """The class of a key in the scope; `takes`: it goes now, `will`: with its segment."""

    class_: ObjectClass
    takes: bool
    will: bool


def decide(
    scope: Scope, key: str, parsed: ParsedSegmentKey | None, known: Known, *, prefix: str
) -> Decided | None:
    """`known` must be read after the listing; None: not in the scope."""
    if parsed is None or not scope.has_key(parsed):
        return None
    # A row that waits for its time is no orphan, however late it is: the clean-up ends it.
    class_ = classify(key, parsed, known, prefix=prefix, now_ms=-1)
    takes = class_ is ObjectClass.ORPHAN and known.row is None and known.deleted
    if class_ is ObjectClass.ORPHAN and not takes:
        class_ = ObjectClass.DELETE_PENDING
    pending = known.row is not None and class_ is not ObjectClass.FOREIGN
    will = pending and known.row is not None and scope.takes(known.row)
    return Decided(class_, takes, will)
