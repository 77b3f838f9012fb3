"""Reads a topic's folders and manifests with many requests at once, within a bound."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from kafka_formats.errors import CorruptData, NotFound, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.bucket_folders import (
    PAGES_MAX,
    ListedSegments,
    folder_names,
)
from pipeline.catalogue.partition_chain import FoundSegment
from pipeline.catalogue.shared_lists import shared_prefixes
from pipeline.catalogue.tiered_segment import DamagedSegment
from pipeline.rebuild.stored_manifest import NotTold, told_by
from pipeline.stores.small_objects import SmallObjects
from rlm.format.manifest import MANIFEST_BYTES_MAX, parse_manifest
from rlm.format.object_keys import (
    ObjectSuffix,
    SegmentKeys,
    may_have_long_topics,
    parse_partition_folder,
    parse_topic_folder,
    partition_prefix,
    segment_keys,
    topic_start,
)
from rlm.reconcile.adoption_plan import StoredSegment
from rsm_backends.store import ObjectStore
from rsm_backends.store_config import StoreConfig

ASKED_AT_ONCE = 16
PARTITIONS_A_PAGE = 3
"""The fewest partitions on the first page of a common list for which the list goes on: with fewer,
each is listed by itself.
"""


@dataclass
class OpenBucket:
    """One store, open while a question is answered."""

    config: StoreConfig
    store: ObjectStore
    asked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_ONCE))
    inner: dict[str, list[str]] = field(default_factory=dict)
    """The names of all folders in each topic's folder that was listed."""
    lacking_manifest: list[StoredSegment] = field(default_factory=list, init=False)
    """The segments listed with both other objects."""

    _manifests: SmallObjects | None = field(default=None, init=False)

    def close(self) -> None:
        """Give up reads in progress. The caller closes the store."""
        if self._manifests is not None:
            self._manifests.close()

    async def topics(self) -> set[str]:
        """The names of all topics with a folder."""
        prefix = self.config.prefix
        names = await folder_names(self.store, prefix)
        heads = [name for name in names if may_have_long_topics(name)]
        for head in heads:
            names += [
                f"{head}/{rest}" for rest in await folder_names(self.store, f"{prefix}{head}/")
            ]
        return {topic[0] for name in names if (topic := parse_topic_folder(name)) is not None}

    async def partitions(self, topic: str) -> list[TopicIdPartition]:
        """The partitions with a folder, of all topics of this name."""
        prefix = self.config.prefix
        found = []
        start = topic_start(prefix, topic)
        for rest in await folder_names(self.store, start):
            name = f"{start.removeprefix(prefix)}{rest}"
            parsed = parse_topic_folder(name)
            if parsed is None or parsed[0] != topic:
                continue
            folder = f"{prefix}{name}/"
            inner = self.inner[folder] = await folder_names(self.store, folder)
            read = (parse_partition_folder(f"{name}/{each}") for each in inner)
            found += [partition for partition in read if partition is not None]
        return found

    async def listed(
        self, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, list[StoredSegment]]:
        """The partitions' segments with a manifest."""
        topics: defaultdict[str, dict[int, TopicIdPartition]] = defaultdict(dict)
        for each in partitions:
            folder = partition_prefix(self.config.prefix, each).removesuffix(f"{each.partition}/")
            topics[folder][each.partition] = each
        lists = [
            self._listed(folder + behind, [of_topic[number] for number in together])
            for folder, of_topic in topics.items()
            for behind, together in shared_prefixes(of_topic, self.inner.get(folder))
        ]
        return _merged(await asyncio.gather(*lists))

    async def _listed(
        self, prefix: str, partitions: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, list[StoredSegment]]:
        """Lists the keys with this prefix, or partition by partition if these keys are too many."""
        found = ListedSegments(self.config.name, self.config.prefix, partitions)
        cursor: str | None = None
        async with self.asked:
            for _ in range(PAGES_MAX):
                is_first = cursor is None
                page = await self.store.list_page(prefix, cursor=cursor)
                found.add(page)
                cursor = page.next_cursor
                if cursor is None:
                    self.lacking_manifest += found.lacking_manifest()
                    return found.finished()
                if is_first and found.partitions_seen < PARTITIONS_A_PAGE <= len(partitions):
                    break
            else:
                raise RetryLater(f"the list of {prefix!r} does not end after {PAGES_MAX} pages")
        return _merged(
            await asyncio.gather(
                *(
                    self._listed(partition_prefix(self.config.prefix, each), [each])
                    for each in partitions
                )
            )
        )

    async def read(self, group: Sequence[StoredSegment]) -> list[FoundSegment | DamagedSegment]:
        """The segments by their manifests, without those deleted meanwhile. A segment is damaged if
        its manifest is, or if its objects are missing or have a different length.
        """
        await asyncio.gather(*(self._add_late(each) for each in group if not each.is_complete))
        keys = [self._keys(each).manifest for each in group]
        if self._manifests is None:
            self._manifests = SmallObjects(
                self.config, self.store, bytes_max=MANIFEST_BYTES_MAX + 1
            )
        read = await self._manifests.read(keys)
        told = []
        for stored, data in zip(group, read, strict=True):
            if isinstance(data, CorruptData):
                raise data
            if not isinstance(data, NotFound):
                told.append(self._told(stored, data))
        return told

    async def without_manifest(self, stored: StoredSegment) -> DamagedSegment | None:
        """The segment, if its manifest is still not there, and its `.log` is."""
        keys = self._keys(stored)
        async with self.asked:
            try:
                await self.store.head(keys.manifest)
            except NotFound:
                with suppress(NotFound):
                    await self.store.head(keys.log)
                    return self._lost_manifest(stored, keys.manifest)
        return None

    def _lost_manifest(self, stored: StoredSegment, key: str) -> DamagedSegment:
        why = "it is not in the store, and no other segment has its offsets"
        error = CorruptData(why, source=f"{self.config.name}:{key}", position=0)
        return DamagedSegment(stored.segment_id, stored.start_offset, None, key, (key,), error)

    def _keys(self, stored: StoredSegment) -> SegmentKeys:
        return segment_keys(self.config.prefix, stored.segment_id, stored.start_offset)

    def _told(self, stored: StoredSegment, data: bytes) -> FoundSegment | DamagedSegment:
        missing: list[str] = []
        if stored.is_complete:
            told = told_by(stored, data)
            if not isinstance(told, NotTold):
                return FoundSegment(told.row, self.config.name, told.objects)
            why = told.why
        else:
            missing += (f".{suffix}" for suffix in ObjectSuffix if suffix not in stored.sizes)
            why = (
                f"its {' and '.join(missing)} is not in the store, so the segment cannot be read: "
                "restore it, or delete the manifest to give up the segment's offsets"
            )
        keys = self._keys(stored)
        return DamagedSegment(
            stored.segment_id,
            stored.start_offset,
            _end_offset(stored, data),
            keys.manifest,
            tuple(key for key in keys.all() if key.endswith(tuple(missing))),
            CorruptData(why, source=f"{self.config.name}:{keys.manifest}", position=0),
        )

    async def _add_late(self, stored: StoredSegment) -> None:
        """Looks for missing objects again: a list may pass `.log` before it is written, and meet
        the manifest after that.
        """
        keys = self._keys(stored)
        for missing, key in ((ObjectSuffix.LOG, keys.log), (ObjectSuffix.INDEXES, keys.indexes)):
            if missing not in stored.sizes:
                with suppress(NotFound):
                    async with self.asked:
                        stored.sizes[missing] = (await self.store.head(key)).size


def _merged(
    lists: Iterable[Mapping[TopicIdPartition, list[StoredSegment]]],
) -> dict[TopicIdPartition, list[StoredSegment]]:
    return {partition: found for each in lists for partition, found in each.items()}


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
    """The topic's partitions in all stores together."""
    found = await asyncio.gather(*(bucket.partitions(topic) for bucket in buckets))
    return {partition for part in found for partition in part}


async def listed_of(
    buckets: Mapping[str, OpenBucket], partitions: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, list[StoredSegment]]:
    """The segments of each partition from all stores; a segment found in two counts once."""
    lists = await asyncio.gather(*(bucket.listed(partitions) for bucket in buckets.values()))
    found: dict[TopicIdPartition, list[StoredSegment]] = {}
    for partition in partitions:
        of_stores = [listed[partition] for listed in lists if listed[partition]]
        found[partition] = of_stores[0] if len(of_stores) == 1 else _joined(of_stores)
    return found


def _joined(lists: Iterable[Iterable[StoredSegment]]) -> list[StoredSegment]:
    found: dict[Uuid, StoredSegment] = {}
    for each in chain.from_iterable(lists):
        known = found.get(each.segment_id.id)
        if known is None or not known.is_complete:
            found[each.segment_id.id] = each
    return list(found.values())
