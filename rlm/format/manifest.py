"""The `.rsm-manifest` of a segment: Aiven's JSON, version 1, which Aiven's own reader still reads.

Aiven's reader fails on unknown fields, except inside `remoteLogSegmentMetadata`. So our additions
are there, as `strandline`: lengths and CRC32C of `.log` and `.indexes`, whole and per chunk, for
verified ranged reads (a chunk table is the base64 of one big-endian uint32 a chunk); where batches
begin, once a chunk, so that a read from an offset needs no `.indexes`; and the transactions open at
the base, if any.
"""

from __future__ import annotations

import base64
import binascii
import json
import operator
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.log_names import check_topic_name
from kafka_formats.producer_snapshot import OpenTransaction
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.json_fields import Fields
from rlm.format.manifest_transforms import Transforms, parse_transforms
from rlmm.segment import RemoteLogSegmentId

CHUNK_BYTES = 256 * 1024
"""The bytes under one checksum: a reader gets its first byte after a whole chunk is read."""

CHUNK_BYTES_MAX = 16 * 1024 * 1024
"""The largest chunk of a manifest: a reader keeps one in memory."""

AIVEN_CHUNK_BYTES = 4 * 1024 * 1024
"""`originalChunkSize`, the bytes Aiven's reader fetches at once; 4 MiB is its recommendation."""

MANIFEST_BYTES_MAX = 4 * 1024 * 1024
_VERSION = "1"
_OUR_VERSION = 1
_OPEN_AT_BASE = "openAtBase"
_PRODUCER_ID_DIGITS_MAX = 19


class ProducerSnapshotOrigin(StrEnum):
    """The source of the uploaded producer snapshot."""

    COPIED = "copied"
    REBUILT = "rebuilt"
    ABSENT = "absent"


class IndexType(StrEnum):
    """The indexes of a segment, by their names in Aiven's manifest, in the order of writing."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producerSnapshot"
    LEADER_EPOCH = "leaderEpoch"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class ChunkChecksums:
    """CRC32C of an object of `size_bytes`, whole and per `chunk_bytes`."""

    size_bytes: int
    crc32c: int
    chunks: tuple[int, ...]
    chunk_bytes: int = CHUNK_BYTES

    @property
    def chunks_expected(self) -> int:
        return -(-self.size_bytes // self.chunk_bytes)


@dataclass(frozen=True, slots=True)
class ObjectChecksums:
    """Our additions to a manifest.

    `chunk_offset_index`: Kafka's offset index with at most one entry a chunk of `.log`: base offset
    and position of the first batch that begins in it (except the one at position 0).
    `open_at_base`: the transactions that the producer snapshot at the base shows open. Each is None
    if the writer was older, or there was no such snapshot.
    """

    log: ChunkChecksums
    indexes: ChunkChecksums
    producer_snapshot: ProducerSnapshotOrigin
    chunk_offset_index: bytes | None = None
    open_at_base: tuple[OpenTransaction, ...] | None = None


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The location of an index in `.indexes`, in bytes."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed manifest. `indexes` has only the indexes that the segment has.

    `transforms` are those of Aiven's plug-in; None: the objects are the segment's files, byte for
    byte. `checksums` None: not written by Strandline.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    leader_epochs: Epochs
    txn_index_empty: bool
    log_bytes: int
    indexes: Mapping[IndexType, IndexRange]
    checksums: ObjectChecksums | None = None
    transforms: Transforms | None = None

    @property
    def open_at_base(self) -> tuple[OpenTransaction, ...] | None:
        """The transactions open at `start_offset`; None if they are not known."""
        if self.start_offset == 0:
            return ()
        return None if self.checksums is None else self.checksums.open_at_base

    def encode(self) -> bytes:
        """The JSON of a segment that Strandline copied: untransformed, with checksums."""
        assert self.checksums is not None
        return json.dumps(
            {
                "version": _VERSION,
                "chunkIndex": _fixed_chunks(self.log_bytes),
                "segmentIndexes": {
                    index.value: None if found is None else _range_json(found)
                    for index, found in ((i, self.indexes.get(i)) for i in IndexType)
                },
                "compression": False,
                "remoteLogSegmentMetadata": self._segment_json(self.checksums),
            },
            separators=(",", ":"),
        ).encode()

    def _segment_json(self, checksums: ObjectChecksums) -> dict[str, Any]:
        partition = self.segment_id.partition
        log = _checksums_json(checksums.log)
        if checksums.chunk_offset_index is not None:
            log["chunkOffsetIndex"] = base64.b64encode(checksums.chunk_offset_index).decode()
        return {
            "remoteLogSegmentId": {
                "topicIdPartition": {
                    "topicId": str(partition.topic_id),
                    "topicPartition": {"topic": partition.topic, "partition": partition.partition},
                },
                "id": str(self.segment_id.id),
            },
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "maxTimestampMs": self.max_timestamp_ms,
            "brokerId": self.broker_id,
            "eventTimestampMs": self.event_timestamp_ms,
            "segmentLeaderEpochs": {str(e.epoch): e.start_offset for e in self.leader_epochs},
            "txnIdxEmpty": self.txn_index_empty,
            "strandline": {
                "version": _OUR_VERSION,
                "producerSnapshot": checksums.producer_snapshot.value,
                "log": log,
                "indexes": _checksums_json(checksums.indexes),
                _OPEN_AT_BASE: _open_json(checksums.open_at_base),
            },
        }


def parse_manifest(data: bytes, *, source: str) -> Manifest:
    """Parse a manifest of Strandline or Aiven's plug-in; CorruptData names `source` and field."""
    if len(data) > MANIFEST_BYTES_MAX:
        raise CorruptData(
            f"{len(data)} bytes are too many for a manifest", source=source, position=0
        )
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"not JSON: {error}", source=source, position=0) from None
    top = Fields(document, source, "")
    if (version := top.text("version")) != _VERSION:
        raise top.wrong("version", f"{version[:20]!r} is unknown, only {_VERSION!r} is supported")
    segment = top.object("remoteLogSegmentMetadata")
    segment_id = _parse_segment_id(segment.object("remoteLogSegmentId"))
    ours = segment.optional_object("strandline")
    log_bytes = top.object("chunkIndex").integer("originalFileSize")
    indexes = _parse_indexes(top.object("segmentIndexes"))
    manifest = Manifest(
        segment_id=segment_id,
        start_offset=segment.integer("startOffset"),
        end_offset=segment.integer("endOffset"),
        max_timestamp_ms=segment.integer("maxTimestampMs", minimum=-1),
        broker_id=segment.integer("brokerId", minimum=-1),
        event_timestamp_ms=segment.integer("eventTimestampMs", minimum=-1),
        leader_epochs=_parse_epochs(segment.object("segmentLeaderEpochs")),
        txn_index_empty=segment.optional_boolean(
            "txnIdxEmpty", default=IndexType.TRANSACTION not in indexes
        ),
        log_bytes=log_bytes,
        indexes=indexes,
        checksums=None if ours is None else _parse_checksums(ours),
        transforms=parse_transforms(top),
    )
    _check_whole(manifest, top)
    return manifest


def custom_metadata_for(
    store: str, log: ChunkChecksums, indexes: ChunkChecksums, manifest: bytes
) -> CustomMetadata:
    """The custom metadata of a segment in `store` with these objects."""
    sums = (log.size_bytes, log.crc32c, indexes.size_bytes, indexes.crc32c)
    return CustomMetadata(store, *sums, len(manifest), crc32c(manifest))


def checksum_chunks(pieces: Iterable[int]) -> bytes:
    """Encode a chunk table."""
    values = tuple(pieces)
    return struct.pack(f">{len(values)}I", *values)


def _check_whole(manifest: Manifest, top: Fields) -> None:
    """Raise CorruptData for fields that contradict each other."""
    if manifest.end_offset < manifest.start_offset:
        raise top.wrong("endOffset", f"{manifest.end_offset} is below startOffset")
    checksums = manifest.checksums
    if checksums is None:
        return
    if manifest.transforms is not None:
        raise top.wrong("compression", "our checksums do not cover transformed chunks")
    if checksums.log.size_bytes != manifest.log_bytes:
        raise top.wrong("chunkIndex", "originalFileSize differs from the length we checksummed")
    for index, found in manifest.indexes.items():
        if found.position + found.size > checksums.indexes.size_bytes:
            raise top.wrong(f"segmentIndexes.{index}", "reaches past the end of .indexes")


def _fixed_chunks(log_bytes: int) -> dict[str, object]:
    last = log_bytes % AIVEN_CHUNK_BYTES
    return {
        "type": "fixed",
        "originalChunkSize": AIVEN_CHUNK_BYTES,
        "originalFileSize": log_bytes,
        "transformedChunkSize": AIVEN_CHUNK_BYTES,
        "finalTransformedChunkSize": last or min(log_bytes, AIVEN_CHUNK_BYTES),
    }


def _range_json(found: IndexRange) -> dict[str, int]:
    return {"position": found.position, "size": found.size}


def _checksums_json(checksums: ChunkChecksums) -> dict[str, object]:
    return {
        "bytes": checksums.size_bytes,
        "crc32c": checksums.crc32c,
        "chunkBytes": checksums.chunk_bytes,
        "chunkCrc32c": base64.b64encode(checksum_chunks(checksums.chunks)).decode(),
    }


def _open_json(transactions: tuple[OpenTransaction, ...] | None) -> dict[str, int] | None:
    if transactions is None:
        return None
    return {str(each.producer_id): each.first_offset for each in transactions}


def _parse_open(fields: Fields) -> tuple[OpenTransaction, ...] | None:
    # Manifests of earlier releases may lack the field.
    entries = fields.optional_object(_OPEN_AT_BASE)
    if entries is None:
        return None
    found = []
    for name in entries.names():
        if not (name.isascii() and name.isdigit() and len(name) <= _PRODUCER_ID_DIGITS_MAX):
            raise entries.wrong("", f"has {name[:20]!r}, not a producer id")
        found.append(OpenTransaction(int(name), entries.integer(name)))
    return tuple(found)


def _parse_segment_id(fields: Fields) -> RemoteLogSegmentId:
    topic_id_partition = fields.object("topicIdPartition")
    topic_partition = topic_id_partition.object("topicPartition")
    try:
        topic = topic_partition.text("topic")
        check_topic_name(topic)
        partition = TopicIdPartition(
            topic,
            Uuid.parse(topic_id_partition.text("topicId")),
            topic_partition.integer("partition"),
        )
        return RemoteLogSegmentId(partition, Uuid.parse(fields.text("id")))
    except InvalidRequest as error:
        raise fields.wrong("id", str(error)) from None


def _parse_epochs(fields: Fields) -> Epochs:
    entries = []
    for name in fields.names():
        if not (name.isascii() and name.isdigit() and len(name) <= 10):
            raise fields.wrong("", f"has {name[:20]!r}, not a leader epoch")
        entries.append(EpochEntry(int(name), fields.integer(name)))
    return tuple(sorted(entries))


def _parse_indexes(fields: Fields) -> Mapping[IndexType, IndexRange]:
    found = {}
    for index in IndexType:
        entry = fields.optional_object(index.value)
        if entry is not None:
            found[index] = IndexRange(entry.integer("position"), entry.integer("size"))
        elif index is not IndexType.TRANSACTION or index.value not in fields.names():
            raise fields.wrong(index.value, "is missing")  # null means none, of transactions only
    return found


def _parse_checksums(fields: Fields) -> ObjectChecksums:
    if (version := fields.integer("version")) != _OUR_VERSION:
        raise fields.wrong("version", f"{version} is unknown; this node is too old for it")
    try:
        origin = ProducerSnapshotOrigin(fields.text("producerSnapshot"))
    except ValueError:
        raise fields.wrong("producerSnapshot", "is unknown") from None
    log = _parse_chunks(fields.object("log"))
    return ObjectChecksums(
        log,
        _parse_chunks(fields.object("indexes")),
        origin,
        _parse_offset_index(fields.object("log"), log),
        _parse_open(fields),
    )


def _parse_offset_index(fields: Fields, log: ChunkChecksums) -> bytes | None:
    name = "chunkOffsetIndex"
    if name not in fields.names():
        return None
    data = _parse_base64(fields, name)
    problem = offset_index_problem(data, log.size_bytes, log.chunks_expected)
    if problem is not None:
        raise fields.wrong(name, problem)
    return data


def offset_index_problem(data: bytes, log_bytes: int, chunks: int) -> str | None:
    """The fault of a chunk offset index; None if each search in it ends inside the log."""
    if len(data) % 8 or len(data) // 8 > chunks:
        return f"{len(data)} bytes do not fit an index of {chunks} chunks"
    if not data:
        return None  # also for an empty log: compaction leaves such segments
    numbers = struct.unpack(f">{len(data) // 4}i", data)
    for column, below in ((numbers[::2], 2**31), (numbers[1::2], log_bytes)):
        bounded = (0, *column, below)
        if not all(map(operator.lt, bounded, bounded[1:])):
            return "does not ascend, or leaves the log"
    return None


def _parse_base64(fields: Fields, name: str) -> bytes:
    try:
        return base64.b64decode(fields.text(name), validate=True)
    except (binascii.Error, ValueError):
        raise fields.wrong(name, "is not base64") from None


def _parse_chunks(fields: Fields) -> ChunkChecksums:
    table = _parse_base64(fields, "chunkCrc32c")
    checksums = ChunkChecksums(
        size_bytes=fields.integer("bytes"),
        crc32c=fields.integer("crc32c", maximum=2**32 - 1),
        chunk_bytes=fields.integer("chunkBytes", minimum=1, maximum=CHUNK_BYTES_MAX),
        chunks=struct.unpack(f">{len(table) // 4}I", table[: len(table) & ~3]),
    )
    if len(table) != 4 * checksums.chunks_expected:
        raise fields.wrong("chunkCrc32c", f"{len(table)} bytes do not fit the object's length")
    return checksums
