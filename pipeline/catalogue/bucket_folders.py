"""What stands in a bucket, found by its folders instead of by listing every key."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.adoption_plan import StoredSegment
from rlm.object_keys import ObjectSuffix, parse_segment_stem, segment_stem
from rlmm.segment import TopicIdPartition
from rsm_backends.store import ListPage, ObjectStore

PAGES_MAX = 1_000_000


async def folder_names(store: ObjectStore, prefix: str) -> list[str]:
    """What the folders right below `prefix` are called behind it: a request for a thousand."""
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
    raise RetryLater(f"{PAGES_MAX} pages of folders below {prefix!r}, and no end")


class ListedSegments:
    """The segments of some partitions, whole or not, as pages of a list in any order tell them.
    Other objects are left out.
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
        """A page's objects; those of a segment are neighbours, and its key is read once."""
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
        """Where the lengths of a segment's objects go; None: it is none that is looked for."""
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
        """How many partitions have a segment so far."""
        return sum(map(bool, self._found.values()))

    def finished(self) -> dict[TopicIdPartition, list[StoredSegment]]:
        """Those with a manifest, in the order in which they were listed."""
        return {
            partition: [each for each in found.values() if ObjectSuffix.MANIFEST in each.sizes]
            for partition, found in self._found.items()
        }
