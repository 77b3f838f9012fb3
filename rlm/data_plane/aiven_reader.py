"""The objects of finished segments that Aiven's plug-in wrote. Runs in a worker.

The metadata log has no checksum of them: the manifest has to tell the same of the segment as its
row, and each index has to be of its form.
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
"""The largest chunk that a node undoes, since each reader holds one; Aiven recommends 4 MiB."""

READ_INDEX_BYTES_MAX = 32 * 1024 * 1024
"""The largest index that a node holds; Kafka's `segment.index.bytes` is 10 MiB."""

_PARSED_WEIGHT = 12
_CHUNK_WEIGHT = 40
"""Bytes of memory a byte of a manifest's JSON, and a chunk in its list, take."""

KeyFiles = Mapping[str, Mapping[str, Path]]
"""Store -> id of a key pair -> the file of its private key."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A segment's objects, found and understood."""

    store: ObjectStore
    keys: SegmentKeys
    manifest: Manifest
    transforms: ChunkTransforms


class AivenReader:
    """Keeps manifests with their data keys, and indexes, up to `cache_bytes_max`. Files of private
    keys are read for each segment whose manifest is: a key that is added needs no new start.
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
        """One index, whole; NoSuchIndex if the segment has none of this type."""
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
                f"{name}: the {index.value} index has {found.size} bytes, and a node reads at most "
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
        """The first manifest of the segment, whose id is in the key: none is another segment's. A
        store that does not answer hides none in the others.
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
            f"segment {segment.segment_id} was copied by another RemoteStorageManager, and its "
            f"manifest is in none of the stores {names}: add a [stores.NAME] with its bucket and "
            "prefix, unless somebody deleted it"
        )

    def _transforms(self, manifest: Manifest, place: StorePlace, source: str) -> ChunkTransforms:
        """Blocks: reads files, and a private key's power takes its time."""
        found = manifest.transforms
        if found is None:
            found = Transforms(plain_chunks(manifest.log_bytes, CHUNK_BYTES), False, None)
        if found.chunks.original_chunk_bytes > READ_CHUNK_BYTES_MAX:
            raise Refused(
                f"{source}: its chunks have {found.chunks.original_chunk_bytes} bytes, and a node "
                f"reads such of at most {READ_CHUNK_BYTES_MAX}: read the segment on Spark"
            )
        if found.encryption is None:
            return ChunkTransforms(found, None, source=source)
        # Here, since a node without encrypted segments needs none of it, and it takes its time.
        from rlm.data_plane.aiven_keys import AivenKeys

        setting = f"stores.{place.store}.aiven_keys"
        try:
            keys = AivenKeys.ring(self._key_files.get(place.store, {}), setting=setting)
        except InvalidRequest as error:  # the node's settings are wrong, not the reader's request
            raise Refused(f"{source}: {error}") from None
        return ChunkTransforms(found, keys.data_key(found.encryption, source=source), source=source)


def _check_same(segment: AivenSegment, manifest: Manifest, name: str) -> None:
    """Require that the manifest tells the same of the segment as its row."""
    told = (manifest.segment_id, manifest.start_offset, manifest.end_offset, manifest.log_bytes)
    row = (segment.segment_id, segment.start_offset, segment.end_offset, segment.log_bytes)
    if told != row:
        raise CorruptData(
            f"the manifest tells {told[0]}, offsets {told[1]} to {told[2]}, {told[3]} bytes, and "
            f"the metadata {row[0]}, {row[1]} to {row[2]}, {row[3]}",
            source=name,
            position=0,
        )
    # The other way round a row may be wrong: brokers before 4.0 do not tell.
    if segment.txn_index_empty and not manifest.txn_index_empty:
        raise CorruptData(
            "the manifest names a transaction index, and the metadata says that there is none",
            source=name,
            position=0,
        )


def checked_index(data: bytes, index: IndexType, segment: AivenSegment, *, source: str) -> bytes:
    """The index; CorruptData unless it is of its form, and within the log."""
    match index:
        case IndexType.OFFSET:
            parsed = OffsetIndex.parse(data, base_offset=segment.start_offset, source=source)
            last = parsed.entries[-1][1] if parsed.entries else 0
            if last and last >= segment.log_bytes:
                raise CorruptData(
                    f"position {last} is behind the log's {segment.log_bytes} bytes", source=source
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
