"""Segments and catalogues made up for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def partition(topic: str = "orders", number: int = 0, topic_id: int = 1) -> TopicIdPartition:
    return TopicIdPartition(topic, uuid(topic_id), number)


def segment(
    first: int,
    last: int,
    *,
    of: TopicIdPartition | None = None,
    log_bytes: int = 1_000,
    max_timestamp_ms: int = -1,
    txn_index_empty: bool = True,
) -> TieredSegment:
    return TieredSegment(
        segment_id=RemoteLogSegmentId(of or partition(), uuid(1_000_000 + first)),
        store="main",
        start_offset=first,
        end_offset=last,
        first_offset=first,
        last_offset=last,
        max_timestamp_ms=max_timestamp_ms,
        log_bytes=log_bytes,
        txn_index_empty=txn_index_empty,
        leader_epochs=(),
    )


@dataclass
class MadeUpCatalogue:
    """As much of a tier as a test says; `refreshes` counts the looks at news. `earliest`, `ends`:
    where a partition's bounds are other than those of its segments.
    """

    tier: dict[TopicIdPartition, list[TieredSegment]]
    stores: Mapping[str, StoreConfig] = field(default_factory=dict)
    earliest: dict[TopicIdPartition, int] = field(default_factory=dict)
    ends: dict[TopicIdPartition, int] = field(default_factory=dict)
    tells_deletions: bool = True
    refreshes: int = 0
    closed: bool = False

    def topics(self) -> Sequence[str]:
        return sorted({one.topic for one in self.tier})

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        found = sorted(one for one in self.tier if one.topic == topic)
        if not found:
            raise NotFound(f"no topic {topic} is tiered")
        return found

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        segments = self.segments(partition)
        first = self.earliest.get(partition, segments[0].first_offset)
        end = self.ends.get(partition, segments[-1].last_offset + 1)
        return PartitionBounds(first, end)

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        if partition not in self.tier:
            raise NotFound(f"{partition} is not tiered")
        return [
            one
            for one in self.tier[partition]
            if one.last_offset >= first_offset and one.first_offset <= last_offset
        ]

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """All is at hand."""

    def refresh(self) -> None:
        self.refreshes += 1

    def close(self) -> None:
        self.closed = True
