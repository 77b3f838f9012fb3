"""Partitions of the captured log directory, tiered into a folder as a node does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from rlm.data_plane.segment_copy import copy_segment
from rlm.local_log.log_dir import LocalPartition, find_partitions
from rlmm.segment import OFFSET_MAX
from rsm_backends.filesystem import FilesystemStore
from rsm_backends.store_config import StoreConfig
from tests.pipeline.read.folder_tier import tiered
from tests.rlm.tier import PREFIX, STORE, copy_job, now_ms

LOG_DIR = Path(__file__).parents[2] / "data" / "kafka-4.3.0" / "log-dir"


@dataclass(frozen=True)
class CapturedTier:
    """A catalogue of what `tier_captured` copied."""

    stores: Mapping[str, StoreConfig]
    found: Mapping[TopicIdPartition, Sequence[TieredSegment]]
    tells_deletions: bool = True

    def topics(self) -> Sequence[str]:
        return sorted({partition.topic for partition in self.found})

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        there = sorted(partition for partition in self.found if partition.topic == topic)
        if not there:
            raise NotFound(f"{topic} is not tiered")
        return there

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        segments = self.found[partition]
        return PartitionBounds(segments[0].first_offset, segments[-1].last_offset + 1)

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        return [
            segment
            for segment in self.found[partition]
            if segment.last_offset >= first_offset and segment.first_offset <= last_offset
        ]

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """All is at hand."""

    def refresh(self) -> None:
        """It never changes."""

    def close(self) -> None:
        """Nothing is open."""


async def tier_captured(folder: Path, *topics: str) -> CapturedTier:
    """Copy the sealed segments of these topics into `folder`."""
    folder.mkdir()
    store = FilesystemStore(folder)
    found = {}
    for partition in captured_partitions(*topics):
        segments = []
        for segment in partition.segments:
            if segment.next_base_offset is not None:
                job = copy_job(partition, segment)
                result = await copy_segment(job, store, now_ms=now_ms)
                segments.append(tiered(job, result, partition.local_log_start_offset))
        found[partition.partition] = segments
    await store.close()
    config = StoreConfig(name=STORE, kind="filesystem", path=folder, prefix=PREFIX)
    return CapturedTier({STORE: config}, found)


def captured_partitions(*topics: str) -> list[LocalPartition]:
    """As the broker left them."""
    scan = find_partitions([LOG_DIR], kafka_cluster_id=None)
    return [each for each in scan.partitions if each.partition.topic in topics]
