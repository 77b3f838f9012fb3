"""Replays a partition of Kafka's metadata topic into the rows that Kafka's manager makes of it.
Pure.

All records of a user's partition are in one partition of the metadata topic, so the topic's
partitions are replayed one by one. Sources: ConsumerTask, RemotePartitionMetadataStore.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from kafka_formats.errors import CorruptData
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.kafka_cache import EpochSegments, Ignored, KafkaCache
from rlm.migration.topic_partitioner import metadata_partition
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.records.records import decode
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

UNREADABLE_TOLD_MAX = 5
"""Limit of the undecodable records that get a sentence each; all are counted."""


@dataclass(slots=True)
class TopicReplay:
    """The replay of one partition of the metadata topic, which `source` names in messages.

    `caches` has the partitions whose deletion is not finished, `deletions` the state of the
    deletions that began, `first_ms` the times when the first copies began. `ignored` counts the
    records that Kafka ignores, by the reason.
    """

    source: str
    caches: dict[TopicIdPartition, KafkaCache] = field(default_factory=dict)
    deletions: dict[TopicIdPartition, PartitionDeleteState] = field(default_factory=dict)
    first_ms: dict[TopicIdPartition, int] = field(default_factory=dict)
    records: int = 0
    ignored: Counter[Ignored] = field(default_factory=Counter)
    unreadable: int = 0
    told_unreadable: list[str] = field(default_factory=list)
    _gone: set[TopicIdPartition] = field(default_factory=set)

    def apply(self, offset: int, value: bytes | None) -> None:
        """Apply the record at this offset; one that can't be decoded is only counted and noted."""
        self.records += 1
        try:
            if value is None:
                raise CorruptData("it has no value", source=f"{self.source} {offset}")
            record = decode(None, value, source=self.source, offset=offset)
        except CorruptData as error:
            self.unreadable += 1
            if len(self.told_unreadable) < UNREADABLE_TOLD_MAX:
                self.told_unreadable.append(str(error))
            return
        if isinstance(record, RemotePartitionDeleteMetadata):
            self._delete(record)
        elif isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            why = self._segment(record)
            if why is not None:
                self.ignored[why] += 1

    def drop_misplaced(self, partition: int, count: int) -> list[str]:
        """Drop the partitions whose records Kafka's own manager would write to a different
        partition than `partition` of the topic's `count`, such as after the topic was widened.
        Returns sentences about those that have segments here.
        """
        told = []
        for tip in list(self.caches):
            place = metadata_partition(tip, count)
            if place != partition and self.caches.pop(tip).rows:
                told.append(f"{partition} has segments of {tip}, which belong into {place}")
        return told

    def _segment(
        self, record: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
    ) -> Ignored | None:
        partition = record.segment_id.partition
        if partition in self._gone:
            return Ignored.PARTITION_DELETED
        cache = self.caches.setdefault(partition, KafkaCache())
        if isinstance(record, RemoteLogSegmentMetadata):
            self.first_ms.setdefault(partition, record.event_timestamp_ms)
            return cache.add(record)
        return cache.update(record)

    def _delete(self, record: RemotePartitionDeleteMetadata) -> None:
        """Apply a record of a partition's deletion; Kafka accepts its states in any order."""
        if record.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            self.caches.pop(record.partition, None)
            self.deletions.pop(record.partition, None)
            self._gone.add(record.partition)
        else:
            self.deletions[record.partition] = record.state


def digest(cache: KafkaCache) -> str:
    """The SHA-256, in hexadecimal digits, of the state of a partition in Kafka's manager: each
    segment with its state, and the look-ups of each epoch.
    """
    found = hashlib.sha256()
    for id_ in sorted(cache.rows):
        row = encode_segment_row(cache.rows[id_])
        found.update(len(row).to_bytes(4, "big") + row)
    for epoch, segments in sorted(cache.epochs.items()):
        found.update(_look_ups(epoch, segments).encode())
    return found.hexdigest()


def _look_ups(epoch: int, segments: EpochSegments) -> str:
    starts = [(start, segments.by_start[start].hex()) for start in segments.starts]
    hidden = sorted(id_.hex() for id_ in segments.unreferenced)
    return f"{epoch} {starts} {hidden} {segments.highest_offset}\n"
