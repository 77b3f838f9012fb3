"""Replicas of a broker tiered into a folder, by the copies that a node makes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import TieredSegment
from rlm.data_plane.copy_job import CopyJob, CopyResult, UploadLimits
from rlm.data_plane.segment_copy import copy_segment
from rlm.local_log.log_dir import LocalPartition, find_partitions
from rsm_backends.memory import MemoryStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.rlm.tier import PREFIX, STORE, copy_job, now_ms


@dataclass(frozen=True)
class FolderTier:
    """What is in `folder`, as a catalogue tells of it."""

    folder: Path
    found: Mapping[TopicIdPartition, list[TieredSegment]]

    @property
    def stores(self) -> dict[str, StoreConfig]:
        store = StoreConfig(name=STORE, kind="filesystem", path=self.folder, prefix=PREFIX)
        return {STORE: store}

    def segments(self, topic: str, number: int = 0) -> list[TieredSegment]:
        """Of one partition."""
        (found,) = (s for p, s in self.found.items() if (p.topic, p.partition) == (topic, number))
        return found

    def file(self, segment: TieredSegment, suffix: str = "log") -> Path:
        """One of a segment's objects."""
        keys = segment.keys(PREFIX)
        return self.folder / next(key for key in keys.all() if key.endswith(f".{suffix}"))

    def copied_to(self, folder: Path) -> FolderTier:
        """The same somewhere else, to be damaged."""
        shutil.copytree(self.folder, folder)
        return replace(self, folder=folder)


def tier_log_dir(
    log_dir: Path,
    folder: Path,
    *topics: str,
    limits: UploadLimits = UploadLimits(),  # noqa: B008 - frozen
) -> FolderTier:
    """Copy the sealed segments of a log directory's topics (none named: of all) into `folder`."""
    scan = find_partitions([log_dir], kafka_cluster_id=None)
    wanted = (p for p in scan.partitions if not topics or p.partition.topic in topics)
    return asyncio.run(_tier(wanted, folder, limits))


async def _tier(
    partitions: Iterable[LocalPartition], folder: Path, limits: UploadLimits
) -> FolderTier:
    store = MemoryStore(now_ms)
    found: dict[TopicIdPartition, list[TieredSegment]] = {}
    for partition in partitions:
        segments = found.setdefault(partition.partition, [])
        for segment in partition.segments:
            if segment.next_base_offset is None:
                continue
            job = replace(copy_job(partition, segment), limits=limits)
            result = await copy_segment(job, store, now_ms=now_ms)
            segments.append(tiered(job, result, partition.local_log_start_offset))
    page = await store.list_page("")
    while True:
        for info in page.objects:
            path = folder / info.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(await read_all(store, info.key))
        if page.next_cursor is None:
            return FolderTier(folder, found)
        page = await store.list_page("", cursor=page.next_cursor)


def tiered(job: CopyJob, result: CopyResult, log_start_offset: int) -> TieredSegment:
    """What a catalogue tells of a copy."""
    return TieredSegment(
        segment_id=job.segment_id,
        store=job.store,
        start_offset=job.start_offset,
        end_offset=job.end_offset,
        first_offset=max(job.start_offset, log_start_offset),
        last_offset=job.end_offset,
        max_timestamp_ms=result.max_timestamp_ms,
        log_bytes=result.log_bytes,
        txn_index_empty=result.txn_index_empty,
        leader_epochs=job.leader_epochs,
        objects=result.custom_metadata,
    )
