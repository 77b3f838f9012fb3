"""Reads the objects of finished segments, and checks those that Strandline copied against the
metadata log.

The custom metadata in the log has the CRC32C of the manifest, of `.log` and of `.indexes`; the
manifest has those of their chunks. `aiven_reader.py` reads segments of Aiven's plug-in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, NotFound, Refused
from kafka_formats.producer_snapshot import OpenTransaction
from rlm.data_plane.aiven_log import LogBytes
from rlm.data_plane.aiven_reader import AivenReader, KeyFiles
from rlm.data_plane.chunk_cache import ByteBoundedCache, ChunkCache
from rlm.data_plane.read_request import AivenSegment, NoSuchIndex, ReadableSegment, TieredSegment
from rlm.data_plane.transaction_batches import OpenAtCut
from rlm.data_plane.verified_chunks import VerifiedObject, gone
from rlm.format.manifest import (
    MANIFEST_BYTES_MAX,
    ChunkChecksums,
    IndexRange,
    IndexType,
    Manifest,
    ObjectChecksums,
    ProducerSnapshotOrigin,
    parse_manifest,
)
from rlm.format.object_keys import SegmentKeys, segment_keys
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import ObjectStore
from rsm_backends.streams import closing_stream, read_all

_PARSED_WEIGHT = 12
"""Factor of the memory of a parsed manifest to the bytes of its JSON, approximately."""


OPEN_AT_CUTS_BYTES_MAX = 1024 * 1024
"""Limit of the memory for transactions found open at cuts, and again for those of reads that were
given up.
"""

_OPEN_WEIGHT = 200
"""Memory of an open transaction in a set, approximately."""

INDEXES_AHEAD_BYTES_MAX = 4 * 1024 * 1024
"""Limit of the size up to which `.indexes` is requested whole, together with the manifest."""


class SegmentReader:
    """Reads segments; caches manifests and indexes up to `cache_bytes_max`, and chunks in
    `chunks`.
    """

    def __init__(
        self,
        stores: Mapping[str, ObjectStore],
        *,
        cache_bytes_max: int,
        chunks: ChunkCache | None = None,
        aiven_keys: KeyFiles | None = None,
    ) -> None:
        self._stores = stores
        self._aivens = AivenReader(
            stores, aiven_keys or {}, cache_bytes_max=cache_bytes_max, chunks=chunks
        )
        self._chunks = chunks
        self._manifests: ByteBoundedCache[tuple[RemoteLogSegmentId, int], Manifest] = (
            ByteBoundedCache(cache_bytes_max // 2)
        )
        self._indexes: ByteBoundedCache[tuple[RemoteLogSegmentId, int, IndexType], bytes] = (
            ByteBoundedCache(cache_bytes_max - cache_bytes_max // 2)
        )
        self._open_at_cuts: ByteBoundedCache[
            tuple[RemoteLogSegmentId, int], tuple[frozenset[OpenTransaction] | None]
        ] = ByteBoundedCache(OPEN_AT_CUTS_BYTES_MAX)
        self._cuts_begun: ByteBoundedCache[tuple[RemoteLogSegmentId, int], OpenAtCut] = (
            ByteBoundedCache(OPEN_AT_CUTS_BYTES_MAX)
        )

    async def manifest(self, segment: TieredSegment) -> Manifest:
        """The segment's manifest. Raises CorruptData unless it is the recorded one."""
        recorded = segment.custom_metadata
        key = (segment.segment_id, recorded.manifest_crc32c)
        manifest = self._manifests.get(key)
        if manifest is None:
            name = self._keys(segment).manifest
            data = await self._manifest_bytes(segment, name)
            manifest = parse_manifest(data, source=name)
            _check_same(segment, manifest, name)
            self._manifests.put(key, manifest, len(data) * _PARSED_WEIGHT)
        return manifest

    async def log(self, segment: ReadableSegment) -> LogBytes:
        """The segment's log."""
        if isinstance(segment, AivenSegment):
            return await self._aivens.log(segment)
        checksums = _checksums(await self.manifest(segment)).log
        return VerifiedObject(
            self._store(segment),
            self._keys(segment).log,
            checksums,
            cache=self._chunks,
            segment_id=segment.segment_id,
        )

    async def warm(self, segment: ReadableSegment, log_bytes: int) -> None:
        """Fill the caches with the manifest and, if chunks are cached, the log's first bytes."""
        await (await self.log(segment)).fetch_ahead(0, log_bytes)

    async def index(self, segment: ReadableSegment, index: IndexType) -> bytes:
        """A whole index. Raises NotFound if the segment has none of this type."""
        if isinstance(segment, AivenSegment):
            return await self._aivens.index(segment, index)
        key = (segment.segment_id, segment.custom_metadata.indexes_crc32c, index)
        data = self._indexes.get(key)
        if data is None:
            ahead = self._indexes_ahead(segment)
            try:
                manifest = await self.manifest(segment)
                found = _index_range(manifest, segment, index)
                whole = None if ahead is None else await ahead
            finally:
                if ahead is not None:
                    ahead.cancel()
                    await asyncio.gather(ahead, return_exceptions=True)
            if whole is None:
                stored = VerifiedObject(
                    self._store(segment), self._keys(segment).indexes, _checksums(manifest).indexes
                )
                data = await stored.read(found.position, found.position + found.size)
                self._keep_index(segment, index, data)
            else:
                data = self._keep_all(segment, manifest, whole)[index]
        return data

    async def chunk_offset_index(self, segment: ReadableSegment) -> bytes:
        """The offset index of the log with one entry per chunk; for older manifests without one,
        the offset index itself.
        """
        if isinstance(segment, AivenSegment):
            return await self._aivens.offset_index(segment)
        found = _checksums(await self.manifest(segment)).chunk_offset_index
        return await self.index(segment, IndexType.OFFSET) if found is None else found

    async def open_at_base(self, segment: ReadableSegment) -> frozenset[OpenTransaction] | None:
        """The transactions open at the segment's base; None if its manifest does not tell, as
        Aiven's never do.
        """
        if isinstance(segment, AivenSegment):
            return None
        opened = (await self.manifest(segment)).open_at_base
        return None if opened is None else frozenset(opened)

    async def open_at_cut(
        self, segment: ReadableSegment, valid_until: int
    ) -> frozenset[OpenTransaction] | None:
        """The transactions open after offset `valid_until` of a segment that is served only up to
        there, from its batches; None if those open at its base are not known, or batches are
        missing.
        """
        at_base = await self.open_at_base(segment)
        if at_base is None:
            return None
        key = (segment.segment_id, valid_until)
        known = self._open_at_cuts.get(key)
        if known is None:
            known = (await self._read_to_cut(segment, at_base, valid_until),)
            weight = (1 + len(known[0] or ())) * _OPEN_WEIGHT
            self._open_at_cuts.put(key, known, weight)
        return known[0]

    async def _read_to_cut(
        self, segment: ReadableSegment, at_base: frozenset[OpenTransaction], valid_until: int
    ) -> frozenset[OpenTransaction] | None:
        """A reader that leaves meanwhile leaves its progress to the next one: a whole segment may
        take longer than clients wait.
        """
        log, key = await self.log(segment), (segment.segment_id, valid_until)
        cut = self._cuts_begun.take(key)
        if cut is None:
            cut = OpenAtCut(segment.start_offset, at_base, valid_until, log.key)
        try:
            async with closing_stream(log.stream(cut.begin_read(), log.size_bytes)) as chunks:
                async for parts in chunks:
                    for part in parts:
                        cut.feed(part)
                    if cut.is_reached:
                        break
        except BaseException:
            self._cuts_begun.put(key, cut, cut.open_count * _OPEN_WEIGHT)
            raise
        return cut.open

    def _indexes_ahead(self, segment: TieredSegment) -> asyncio.Task[bytes | None] | None:
        """Fetch the whole `.indexes` at the same time as the manifest, which saves a round trip;
        the metadata log has its checksum. None if the manifest is cached or `.indexes` too large.
        """
        recorded = segment.custom_metadata
        known = self._manifests.get((segment.segment_id, recorded.manifest_crc32c)) is not None
        if known or not 0 < recorded.indexes_bytes <= INDEXES_AHEAD_BYTES_MAX:
            return None
        return asyncio.get_running_loop().create_task(self._whole_indexes(segment))

    async def _whole_indexes(self, segment: TieredSegment) -> bytes | None:
        """The whole `.indexes`; None if it is not as recorded: then the chunks' checksums in the
        manifest will show the damaged place.
        """
        recorded = segment.custom_metadata
        name = self._keys(segment).indexes
        data = await _whole(self._store(segment), name, recorded.indexes_bytes)
        right = len(data) == recorded.indexes_bytes and crc32c(data) == recorded.indexes_crc32c
        return data if right else None

    def _keep_all(
        self, segment: TieredSegment, manifest: Manifest, whole: bytes
    ) -> dict[IndexType, bytes]:
        indexes = {
            index: whole[found.position : found.position + found.size]
            for index, found in manifest.indexes.items()
        }
        for index, data in indexes.items():
            if _has(manifest, index):  # a cached index is returned without the manifest
                self._keep_index(segment, index, data)
        return indexes

    def _keep_index(self, segment: TieredSegment, index: IndexType, data: bytes) -> None:
        key = (segment.segment_id, segment.custom_metadata.indexes_crc32c, index)
        self._indexes.put(key, data, len(data))

    def _store(self, segment: TieredSegment) -> ObjectStore:
        name = segment.custom_metadata.store
        store = self._stores.get(name)
        if store is None:
            raise Refused(
                f"segment {segment.segment_id} is in the store {name!r}, which is not in this "
                f"node's settings: add [stores.{name}]"
            )
        return store

    def _keys(self, segment: TieredSegment) -> SegmentKeys:
        return segment_keys(segment.prefix, segment.segment_id, segment.start_offset)

    async def _manifest_bytes(self, segment: TieredSegment, name: str) -> bytes:
        recorded = segment.custom_metadata
        if recorded.manifest_bytes > MANIFEST_BYTES_MAX:
            raise CorruptData(
                f"the metadata has {recorded.manifest_bytes} bytes, too many for a manifest",
                source=name,
                position=0,
            )
        data = await _whole(self._store(segment), name, recorded.manifest_bytes + 1)
        if len(data) != recorded.manifest_bytes or crc32c(data) != recorded.manifest_crc32c:
            raise CorruptData(
                f"{recorded.manifest_bytes} bytes with CRC32C {recorded.manifest_crc32c:08x} are "
                f"recorded, but {len(data)} bytes with {crc32c(data):08x} are stored",
                source=name,
                position=0,
            )
        return data


async def _whole(store: ObjectStore, name: str, bytes_max: int) -> bytes:
    try:
        return await read_all(store, name, end=bytes_max)
    except NotFound:
        raise gone(name) from None


def _checksums(manifest: Manifest) -> ObjectChecksums:
    assert manifest.checksums is not None, "_check_same requires them"
    return manifest.checksums


def _index_range(manifest: Manifest, segment: TieredSegment, index: IndexType) -> IndexRange:
    if not _has(manifest, index):
        raise NoSuchIndex(f"segment {segment.segment_id} has no {index.value} index")
    return manifest.indexes[index]


def _has(manifest: Manifest, index: IndexType) -> bool:
    """True if the segment has this index; an absent producer snapshot is listed with 0 bytes."""
    absent = _checksums(manifest).producer_snapshot is ProducerSnapshotOrigin.ABSENT
    return index in manifest.indexes and not (absent and index is IndexType.PRODUCER_SNAPSHOT)


def _check_same(segment: TieredSegment, manifest: Manifest, name: str) -> None:
    """Raise CorruptData unless the manifest agrees with the metadata log about the segment."""
    recorded = segment.custom_metadata
    checksums = manifest.checksums
    if checksums is None:
        raise CorruptData(
            "the manifest has no checksums, so it is not by Strandline", source=name, position=0
        )

    def differs(found: ChunkChecksums, size_bytes: int, crc: int) -> bool:
        return (found.size_bytes, found.crc32c) != (size_bytes, crc)

    if (
        (manifest.segment_id, manifest.start_offset, manifest.end_offset)
        != (segment.segment_id, segment.start_offset, segment.end_offset)
        or differs(checksums.log, recorded.log_bytes, recorded.log_crc32c)
        or differs(checksums.indexes, recorded.indexes_bytes, recorded.indexes_crc32c)
    ):
        raise CorruptData(
            f"it is the manifest of a different segment than {segment.segment_id} at offset "
            f"{segment.start_offset}",
            source=name,
            position=0,
        )
