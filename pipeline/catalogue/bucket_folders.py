"""Finds the segments in a bucket by its folders instead of by listing every key."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import ObjectSuffix, parse_segment_stem, segment_stem
from rlm.reconcile.adoption_plan import StoredSegment
from rsm_backends.store import ListPage, ObjectStore

PAGES_MAX = 1_000_000


async def folder_names(store: ObjectStore, prefix: str) -> list[str]:
    """Names of the folders directly below `prefix`, without it; one request lists a thousand."""
    found: dict[str, None] = {}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await store.list_folders(prefix, cursor=cursor)
        for each in page.folders:
            name = each.removeprefix(prefix).removesuffix("/")
            if each == f"{prefix}{name}/" and "/" not in name:
                found[name] = None
        cursor = page.next_cursor
        if cursor is None:
            return list(found)
    raise RetryLater(f"the list of folders below {prefix!r} does not end after {PAGES_MAX} pages")


class ListedSegments:
    """The segments of some partitions, complete or not, collected from list pages in any order.
    Other objects are ignored.
    """

    def __init__(
        self, store_name: str, prefix: str, partitions: Iterable[TopicIdPartition]
    ) -> None:
        self._store_name = store_name
        self._prefix = prefix
        self._found: dict[TopicIdPartition, dict[Uuid, StoredSegment]] = {
            partition: {} for partition in partitions
        }

    def add(self, page: ListPage) -> None:
        """Adds a page's objects. Those of one segment are neighbours, so its key is parsed once."""
        stem_before: str | None = None
        sizes: dict[ObjectSuffix, int] | None = None
        for each in page.objects:
            stem, suffix = segment_stem(each.key)
            if suffix is None:
                continue
            if stem != stem_before:
                stem_before, sizes = stem, self._sizes(stem)
            if sizes is not None:
                sizes[suffix] = each.size

    def _sizes(self, stem: str) -> dict[ObjectSuffix, int] | None:
        """The sizes of the segment's objects, to fill in; None if it is not a wanted segment."""
        named = parse_segment_stem(self._prefix, stem)
        found = None if named is None else self._found.get(named[0].partition)
        if named is None or found is None:
            return None
        segment_id, start_offset = named
        segment = found.get(segment_id.id)
        if segment is None:
            segment = StoredSegment(segment_id, start_offset, self._store_name, {})
            found[segment_id.id] = segment
        return segment.sizes if segment.start_offset == start_offset else None

    @property
    def partitions_seen(self) -> int:
        """Number of partitions with a segment so far."""
        return sum(map(bool, self._found.values()))

    def finished(self) -> dict[TopicIdPartition, list[StoredSegment]]:
        """The segments with a manifest, by partition, in the order in which they were listed."""
        return {
            partition: [each for each in found.values() if ObjectSuffix.MANIFEST in each.sizes]
            for partition, found in self._found.items()
        }

    def lacking_manifest(self) -> list[StoredSegment]:
        """The segments with both other objects: copies that are about to end or broke off, or their
        manifest is lost.
        """
        return [
            each
            for found in self._found.values()
            for each in found.values()
            if ObjectSuffix.MANIFEST not in each.sizes and len(each.sizes) == len(ObjectSuffix) - 1
        ]
