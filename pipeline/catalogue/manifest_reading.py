"""What a topic's folders and manifests say, read with many requests at once, but bounded."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.kafka_uuid import Uuid
from pipeline.catalogue.bucket_folders import folders, stored_segments, topic_of_folder
from pipeline.catalogue.partition_chain import FoundSegment
from pipeline.catalogue.tiered_segment import DamagedSegment
from pipeline.rebuild.stored_manifest import NotTold, told_by
from rlm.adoption_plan import StoredSegment
from rlm.manifest import MANIFEST_BYTES_MAX, parse_manifest
from rlm.object_keys import ObjectSuffix, partition_prefix, segment_keys
from rlmm.segment import TopicIdPartition
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all

LISTS_AT_ONCE = 16
GETS_AT_ONCE = 64

Item = TypeVar("Item")


@dataclass
class OpenBucket:
    """One store while a question is answered."""

    config: StoreConfig
    store: ObjectStore
    lists: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LISTS_AT_ONCE))
    gets: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(GETS_AT_ONCE))

    async def topics(self) -> set[str]:
        """The names of all topics with a folder."""
        prefix = self.config.prefix
        found = set()
        async for folder in folders(self.store, prefix):
            if (topic := topic_of_folder(prefix, folder)) is not None:
                found.add(topic[0])
        return found

    async def partitions(self, topic: str) -> list[TopicIdPartition]:
        """The partitions with a folder, of all topics of this name."""
        prefix = self.config.prefix
        found = []
        async for folder in folders(self.store, f"{prefix}{topic}-"):
            parsed = topic_of_folder(prefix, folder)
            if parsed is None or parsed[0] != topic:
                continue
            async for inner in folders(self.store, folder):
                number = inner[len(folder) : -1]
                if number.isascii() and number.isdecimal() and str(int(number)) == number:
                    found.append(TopicIdPartition(topic, parsed[1], int(number)))
        return found

    async def listed(self, partition: TopicIdPartition) -> list[StoredSegment]:
        """Its segments with a manifest."""
        prefix = self.config.prefix
        async with self.lists:
            found = await stored_segments(
                self.store, self.config.name, prefix, partition_prefix(prefix, partition)
            )
        return [each for each in found if ObjectSuffix.MANIFEST in each.sizes]

    async def read(self, stored: StoredSegment) -> FoundSegment | DamagedSegment | None:
        """The segment as its manifest tells it; None: it went meanwhile. Damaged: the manifest is,
        or its segment is not there or not as long as it says.
        """
        keys = segment_keys(self.config.prefix, stored.segment_id, stored.start_offset)
        source = f"{self.config.name}:{keys.manifest}"
        try:
            async with self.gets:
                await self._add_late(stored)
                data = await read_all(self.store, keys.manifest, end=MANIFEST_BYTES_MAX + 1)
        except NotFound:
            return None
        missing = [f".{suffix}" for suffix in ObjectSuffix if suffix not in stored.sizes]
        if missing:
            why = (
                f"its {' and '.join(missing)} is not in the store: the segment cannot be read; "
                "find it, or delete the manifest to give its offsets up"
            )
        else:
            told = told_by(stored, data)
            if not isinstance(told, NotTold):
                return FoundSegment(told.row, self.config.name)
            why = told.why
        return DamagedSegment(
            stored.segment_id,
            stored.start_offset,
            _end_offset(stored, data),
            keys.manifest,
            tuple(key for key in keys.all() if key.endswith(tuple(missing))),
            CorruptData(why, source=source, position=0),
        )

    async def _add_late(self, stored: StoredSegment) -> None:
        """A list may have passed `.log` before it was written, and met the manifest after."""
        keys = segment_keys(self.config.prefix, stored.segment_id, stored.start_offset)
        for suffix, key in ((ObjectSuffix.LOG, keys.log), (ObjectSuffix.INDEXES, keys.indexes)):
            if suffix not in stored.sizes:
                try:
                    stored.sizes[suffix] = (await self.store.head(key)).size
                except NotFound:
                    continue


def _end_offset(stored: StoredSegment, manifest_bytes: bytes) -> int | None:
    try:
        manifest = parse_manifest(manifest_bytes, source=str(stored.segment_id))
    except CorruptData:
        return None
    is_its_own = (manifest.segment_id, manifest.start_offset) == (
        stored.segment_id,
        stored.start_offset,
    )
    return manifest.end_offset if is_its_own else None


async def partitions_of(buckets: Iterable[OpenBucket], topic: str) -> set[TopicIdPartition]:
    """Of all stores together."""
    found = await asyncio.gather(*(bucket.partitions(topic) for bucket in buckets))
    return {partition for part in found for partition in part}


async def listed_of(
    buckets: Mapping[str, OpenBucket], partitions: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, list[StoredSegment]]:
    """The segments of each partition, of all stores together; of one in two stores one."""
    asked = [(bucket, partition) for partition in partitions for bucket in buckets.values()]
    lists = await asyncio.gather(*(bucket.listed(partition) for bucket, partition in asked))
    found: defaultdict[TopicIdPartition, dict[Uuid, StoredSegment]] = defaultdict(dict)
    for (_, partition), segments in zip(asked, lists, strict=True):
        for each in segments:
            known = found[partition].get(each.segment_id.id)
            if known is None or not known.is_complete:
                found[partition][each.segment_id.id] = each
    return {partition: list(found[partition].values()) for partition in partitions}
