"""Manifests read fast: the very text that `Manifest.encode` writes, of a segment that is listed.

To parse the JSON and judge each field takes longer than to read the file. Here one pattern does it,
and what differs from it in a single byte, or does not fit what is listed, goes the general way
(`parse_manifest`, `told_whole`), so that there is one judgement on what is valid.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from functools import lru_cache

from kafka_formats.crc32c import crc32c
from rlm.adoption_plan import StoredSegment, WholeSegment
from rlm.copy_job import ProducerSnapshotOrigin
from rlm.custom_metadata import CustomMetadata
from rlm.manifest import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, offset_index_problem
from rlm.object_keys import ObjectSuffix
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState, TopicIdPartition

_INT64_MAX = 2**63 - 1
_UINT32_MAX = 2**32 - 1

_NUMBER = "(0|[1-9][0-9]{0,18})"
_BASE64 = "([A-Za-z0-9+/]*+={0,2})"
_RANGE = rf'\{{"position":{_NUMBER},"size":{_NUMBER}\}}'
_CHECKSUMS = (
    f'"bytes":{_NUMBER},"crc32c":{_NUMBER},"chunkBytes":{_NUMBER},"chunkCrc32c":"{_BASE64}"'
)
_PLACES = {
    "any": "(?:0|[1-9][0-9]{0,18})",
    "number": _NUMBER,
    "or_none": "(-1|0|[1-9][0-9]{0,18})",
    "range": _RANGE,
    "range_or_null": f"(?:null|{_RANGE})",
    "which": "(.+?)",
    "epochs": '([0-9":,]+)',
    "bool": "(true|false)",
    "word": "([a-z]+)",
    "checksums": _CHECKSUMS,
    "offset_index": f'(?:,"chunkOffsetIndex":"{_BASE64}")?',
}
_LAYOUT = (
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":<any>,'
    '"originalFileSize":<number>,"transformedChunkSize":<any>,"finalTransformedChunkSize":<any>},'
    '"segmentIndexes":{"offset":<range>,"timestamp":<range>,"producerSnapshot":<range>,'
    '"leaderEpoch":<range>,"transaction":<range_or_null>},"compression":false,'
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":<which>,"endOffset":<number>,"maxTimestampMs":<or_none>,"brokerId":<or_none>,'
    '"eventTimestampMs":<or_none>,"segmentLeaderEpochs":{<epochs>},"txnIdxEmpty":<bool>,'
    '"strandline":{"version":1,"producerSnapshot":"<word>","log":{<checksums><offset_index>},'
    '"indexes":{<checksums>}}}}'
)
_PATTERN = re.compile(
    re.sub("<([a-z_]+)>", lambda place: _PLACES[place[1]], re.escape(_LAYOUT)).encode()
)
_EPOCH = re.compile(rb'"(0|[1-9][0-9]{0,9})":(0|[1-9][0-9]{0,18})')
_ORIGINS = {origin.value.encode() for origin in ProducerSnapshotOrigin}


def usual_segment(stored: StoredSegment, manifest_bytes: bytes) -> WholeSegment | None:
    """What `whole_segment` says where it says one; None: ask that one."""
    match = _PATTERN.fullmatch(manifest_bytes)
    if match is None or len(manifest_bytes) > MANIFEST_BYTES_MAX:
        return None
    original, *ranges, which = match.group(*range(1, 13))
    end, max_timestamp, broker, event_timestamp = map(int, match.group(13, 14, 15, 16))
    epochs_text, txn_index_empty, origin = match.group(17, 18, 19)
    log, indexes = match.group(20, 21, 22, 23), match.group(25, 26, 27, 28)
    objects = CustomMetadata(
        stored.store, int(log[0]), int(log[1]), int(indexes[0]), int(indexes[1]),
        len(manifest_bytes), crc32c(manifest_bytes),
    )  # fmt: skip
    epochs = _epochs(epochs_text)
    is_so = (
        which == _which(stored)
        and stored.sizes.get(ObjectSuffix.LOG) == objects.log_bytes == int(original)
        and stored.sizes.get(ObjectSuffix.INDEXES) == objects.indexes_bytes
        and stored.start_offset <= end
        and max(end, max_timestamp, broker, event_timestamp) <= _INT64_MAX
        and all(
            int(position) + int(size) <= objects.indexes_bytes
            for position, size in zip(ranges[::2], ranges[1::2], strict=True)
            if position is not None
        )
        and origin in _ORIGINS
        and _is_table(log)
        and _is_table(indexes)
        and _is_offset_index(match[24], log)
    )
    if not is_so or epochs is None:
        return None
    row = RemoteLogSegmentMetadata(
        stored.segment_id, stored.start_offset, end, broker, max_timestamp, event_timestamp, epochs,
        objects.log_bytes, None, SegmentState.COPY_SEGMENT_STARTED, txn_index_empty == b"true",
    )  # fmt: skip
    return WholeSegment(row, objects)


def _which(stored: StoredSegment) -> bytes:
    """The segment's id and start offset, as they have to stand there."""
    id_ = stored.segment_id
    return b'%s"id":"%s"},"startOffset":%d' % (
        _partition(id_.partition), str(id_.id).encode(), stored.start_offset
    )  # fmt: skip


@lru_cache(maxsize=64)
def _partition(partition: TopicIdPartition) -> bytes:
    return (
        f'{{"topicIdPartition":{{"topicId":"{partition.topic_id}","topicPartition":'
        f'{{"topic":"{partition.topic}","partition":{partition.partition}}}}},'
    ).encode()


def _epochs(text: bytes) -> tuple[tuple[int, int], ...] | None:
    found = _EPOCH.findall(text)
    if b",".join([b'"%s":%s' % each for each in found]) != text:
        return None
    epochs = {int(epoch): int(start) for epoch, start in found}
    if len(epochs) < len(found) or max(epochs.values()) > _INT64_MAX:
        return None
    return tuple(sorted(epochs.items()))


def _is_table(checksums: Sequence[bytes]) -> bool:
    """Whether a checksum is there for each chunk, and each number is in its bounds."""
    size, crc, chunk, table = int(checksums[0]), int(checksums[1]), int(checksums[2]), checksums[3]
    return (
        crc <= _UINT32_MAX
        and 1 <= chunk <= CHUNK_BYTES_MAX
        and len(table) % 4 == 0
        and len(table) // 4 * 3 - table.count(b"=") == 4 * -(-size // chunk)
    )


def _is_offset_index(text: bytes | None, log: Sequence[bytes]) -> bool:
    if text is None:
        return True
    if len(text) % 4:
        return False
    size, chunk = int(log[0]), int(log[2])
    return offset_index_problem(binascii.a2b_base64(text), size, -(-size // chunk)) is None
