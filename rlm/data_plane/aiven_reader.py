"""Reads the objects of finished segments that Aiven's plug-in wrote. Runs in a worker.

The metadata log has no checksum of them. Instead, the manifest has to agree with the segment's row,
and each index has to be well-formed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka_formats import leader_epoch_checkpoint, producer_snapshot, transaction_index
from kafka_formats.errors import (
    CorruptData,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from kafka_formats.offset_index import OffsetIndex, floor_batch, without_zeros
from kafka_formats.time_index import TimeIndex
from rlm.data_plane.aiven_log import BatchCheckedLog, ChunkedLog, LogBytes
from rlm.data_plane.chunk_cache import ByteBoundedCache, ChunkCache
from rlm.data_plane.chunk_transforms import ChunkTransforms
from rlm.data_plane.read_request import AivenSegment, NoSuchIndex, StorePlace
from rlm.data_plane.verified_chunks import gone
from rlm.format.manifest import (
    CHUNK_BYTES,
    MANIFEST_BYTES_MAX,
    IndexType,
    Manifest,
    parse_manifest,
)
from rlm.format.manifest_transforms import Transforms, plain_chunks
from rlm.format.object_keys import SegmentKeys, segment_keys
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store import ObjectStore
from rsm_backends.streams import read_all

READ_CHUNK_BYTES_MAX = 64 * 1024 * 1024
"""Limit of a chunk's size, since each reader keeps one in memory; Aiven recommends 4 MiB."""

READ_INDEX_BYTES_MAX = 32 * 1024 * 1024
"""Limit of an index's size, since it is kept whole; Kafka's `segment.index.bytes` is 10 MiB."""

_PARSED_WEIGHT = 12
_CHUNK_WEIGHT = 40
"""Bytes of memory per byte of a manifest's JSON, and per chunk in its list of chunks."""

KeyFiles = Mapping[str, Mapping[str, Path]]
"""The files of private keys, by store and id of the key pair."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A segment whose manifest was found and parsed."""

    store: ObjectStore
    keys: SegmentKeys
    manifest: Manifest
    transforms: ChunkTransforms


class AivenReader:
    """Reads segments, and caches manifests with their data keys and indexes up to
    `cache_bytes_max`. The private keys are read again with each manifest, so a new key needs no
    restart.
    """

    def __init__(
        self,
        stores: Mapping[str, ObjectStore],
        key_files: KeyFiles,
        *,
        cache_bytes_max: int,
        chunks: ChunkCache | None = None,
    ) -> None:
        self._stores = stores
        self._key_files = key_files
        self._chunks = chunks
        self._kept: ByteBoundedCache[RemoteLogSegmentId, _Opened] = ByteBoundedCache(
            cache_bytes_max // 2
        )
        self._indexes: ByteBoundedCache[tuple[RemoteLogSegmentId, IndexType], bytes] = (
            ByteBoundedCache(cache_bytes_max - cache_bytes_max // 2)
        )

    async def log(self, segment: AivenSegment) -> LogBytes:
        """The segment's log."""
        opened = await self._opened(segment)
        log = ChunkedLog(opened.store, opened.keys.log, segment, opened.transforms, self._chunks)
        if opened.transforms.authenticates:
            return log
        return BatchCheckedLog(log, segment, partial(self._floor, segment))

    async def index(self, segment: AivenSegment, index: IndexType) -> bytes:
        """A whole index. Raises NoSuchIndex if the segment has none of this type."""
        data = self._indexes.get((segment.segment_id, index))
        if data is None:
            opened = await self._opened(segment)
            data = await self._read_index(segment, opened, index)
            self._indexes.put((segment.segment_id, index), data, len(data))
        return data

    async def offset_index(self, segment: AivenSegment) -> bytes:
        """The entries of the offset index."""
        return without_zeros(await self.index(segment, IndexType.OFFSET))

    async def _floor(self, segment: AivenSegment, position: int) -> int:
        return floor_batch(await self.offset_index(segment), position)

    async def _read_index(self, segment: AivenSegment, opened: _Opened, index: IndexType) -> bytes:
        found = opened.manifest.indexes.get(index)
        if found is None or (index is IndexType.PRODUCER_SNAPSHOT and not found.size):
            raise NoSuchIndex(f"segment {segment.segment_id} has no {index.value} index")
        name, end = opened.keys.indexes, found.position + found.size
        if found.size > READ_INDEX_BYTES_MAX:
            raise Refused(
                f"{name}: the {index.value} index has {found.size} bytes, but a node reads at most "
                f"{READ_INDEX_BYTES_MAX}: read the segment on Spark"
            )
        stored = b""
        if found.size:
            try:
                stored = await read_all(opened.store, name, start=found.position, end=end)
            except NotFound:
                raise gone(name) from None
        if len(stored) != found.size:
            raise CorruptData(
                f"the object ends inside the {index.value} index",
                source=name,
                position=found.position + len(stored),
            )
        data = opened.transforms.index(stored, found.position, source=name)
        return await asyncio.to_thread(checked_index, data, index, segment, source=name)

    async def _opened(self, segment: AivenSegment) -> _Opened:
        opened = self._kept.get(segment.segment_id)
        if opened is None:
            place, keys, data = await self._manifest_bytes(segment)
            manifest = await asyncio.to_thread(parse_manifest, data, source=keys.manifest)
            _check_same(segment, manifest, keys.manifest)
            transforms = await asyncio.to_thread(self._transforms, manifest, place, keys.log)
            opened = _Opened(self._stores[place.store], keys, manifest, transforms)
            weight = len(data) * _PARSED_WEIGHT + transforms.chunks.count * _CHUNK_WEIGHT
            self._kept.put(segment.segment_id, opened, weight)
        return opened

    async def _manifest_bytes(self, segment: AivenSegment) -> tuple[StorePlace, SegmentKeys, bytes]:
        """The place, keys and bytes of the segment's manifest, from the first store that has it.
        The segment id is part of the key, so it can't be that of a different segment. If a store
        does not answer, the other stores are still tried.
        """
        unanswered: StrandlineError | None = None
        for place in segment.places:
            keys = segment_keys(place.prefix, segment.segment_id, segment.start_offset)
            try:
                data = await read_all(
                    self._stores[place.store], keys.manifest, end=MANIFEST_BYTES_MAX + 1
                )
            except NotFound:
                continue
            except (RetryLater, Refused) as error:
                unanswered = error
                continue
            return place, keys, data
        if unanswered is not None:
            raise unanswered
        names = ", ".join(place.store for place in segment.places)
        raise Refused(
            f"segment {segment.segment_id} was copied by a different RemoteStorageManager, and its "
            f"manifest is in none of the stores {names}: add a [stores.NAME] with its bucket and "
            "prefix, unless it was deleted"
        )

    def _transforms(self, manifest: Manifest, place: StorePlace, source: str) -> ChunkTransforms:
        """The transforms of a segment's chunks. It blocks: it reads key files and decrypts a data
        key.
        """
        found = manifest.transforms
        if found is None:
            found = Transforms(plain_chunks(manifest.log_bytes, CHUNK_BYTES), False, None)
        if found.chunks.original_chunk_bytes > READ_CHUNK_BYTES_MAX:
            raise Refused(
                f"{source}: its chunks have {found.chunks.original_chunk_bytes} bytes, but a node "
                f"reads chunks of at most {READ_CHUNK_BYTES_MAX}: read the segment on Spark"
            )
        if found.encryption is None:
            return ChunkTransforms(found, None, source=source)
        # Imported here: only encrypted segments need it, and it is slow to import.
        from rlm.data_plane.aiven_keys import AivenKeys

        setting = f"stores.{place.store}.aiven_keys"
        try:
            keys = AivenKeys.ring(self._key_files.get(place.store, {}), setting=setting)
        except InvalidRequest as error:  # the error is in the settings, not in the request
            raise Refused(f"{source}: {error}") from None
        return ChunkTransforms(found, keys.data_key(found.encryption, source=source), source=source)


def _check_same(segment: AivenSegment, manifest: Manifest, name: str) -> None:
    """Raise CorruptData unless the manifest agrees with the segment's row."""
    told = (manifest.segment_id, manifest.start_offset, manifest.end_offset, manifest.log_bytes)
    row = (segment.segment_id, segment.start_offset, segment.end_offset, segment.log_bytes)
    if told != row:
        raise CorruptData(
            f"the manifest has {told[0]}, offsets {told[1]} to {told[2]}, {told[3]} bytes, but "
            f"the metadata has {row[0]}, offsets {row[1]} to {row[2]}, {row[3]} bytes",
            source=name,
            position=0,
        )
    # The opposite case is allowed: in rows of brokers before 4.0 the flag is missing.
    if segment.txn_index_empty and not manifest.txn_index_empty:
        raise CorruptData(
            "the manifest has a transaction index, but by the metadata there is none",
            source=name,
            position=0,
        )


def checked_index(data: bytes, index: IndexType, segment: AivenSegment, *, source: str) -> bytes:
    """Return the index. Raises CorruptData if it is malformed, or has a position after the log's
    end.
    """
    match index:
        case IndexType.OFFSET:
            parsed = OffsetIndex.parse(data, base_offset=segment.start_offset, source=source)
            last = parsed.entries[-1][1] if parsed.entries else 0
            if last and last >= segment.log_bytes:
                raise CorruptData(
                    f"position {last} is after the end of the log, {segment.log_bytes} bytes",
                    source=source,
                )
        case IndexType.TIMESTAMP:
            TimeIndex.parse(data, base_offset=segment.start_offset, source=source)
        case IndexType.PRODUCER_SNAPSHOT:
            producer_snapshot.parse(data, source=source)
        case IndexType.LEADER_EPOCH:
            leader_epoch_checkpoint.parse(data, source=source)
        case IndexType.TRANSACTION:
            transaction_index.parse(data, source=source)
    return data
