"""Manifests read fast: the very text that `Manifest.encode` writes, of a segment that is listed.

To parse the JSON and judge each field takes longer than to read the file. Here one pattern does it,
and what differs from it in a single byte, or does not fit what is listed, goes the general way
(`parse_manifest`, `told_whole`), so that there is one judgement on what is valid.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence

from kafka_formats.crc32c import crc32c
from rlm.adoption_plan import StoredSegment, WholeSegment
from rlm.copy_job import ProducerSnapshotOrigin
from rlm.custom_metadata import CustomMetadata
from rlm.manifest import CHUNK_BYTES_MAX, offset_index_problem
from rlm.object_keys import ObjectSuffix
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

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
    "topic": "([A-Za-z0-9._-]{1,249})",
    "id": "([A-Za-z0-9_-]{22})",
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
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"<id>",'
    '"topicPartition":{"topic":"<topic>","partition":<number>}},"id":"<id>"},'
    '"startOffset":<number>,"endOffset":<number>,"maxTimestampMs":<or_none>,"brokerId":<or_none>,'
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
    if match is None:
        return None
    original, *ranges, topic_id, topic, number, id_ = match.group(*range(1, 16))
    start, end, max_timestamp, broker, event_timestamp = map(int, match.group(*range(16, 21)))
    epochs_text, txn_index_empty, origin = match.group(21, 22, 23)
    log, indexes = match.group(*range(24, 28)), match.group(*range(29, 33))
    segment_id, partition = stored.segment_id, stored.segment_id.partition
    objects = CustomMetadata(
        stored.store, int(log[0]), int(log[1]), int(indexes[0]), int(indexes[1]),
        len(manifest_bytes), crc32c(manifest_bytes),
    )  # fmt: skip
    epochs = _epochs(epochs_text)
    is_so = (
        id_.decode() == str(segment_id.id)
        and (topic_id.decode(), topic.decode(), int(number))
        == (str(partition.topic_id), partition.topic, partition.partition)
        and (start, objects.log_bytes, objects.indexes_bytes)
        == (stored.start_offset, *map(stored.sizes.get, (ObjectSuffix.LOG, ObjectSuffix.INDEXES)))
        and start <= end
        and max(end, max_timestamp, broker, event_timestamp) <= _INT64_MAX
        and int(original) == objects.log_bytes
        and all(
            int(position) + int(size) <= objects.indexes_bytes
            for position, size in zip(ranges[::2], ranges[1::2], strict=True)
            if position is not None
        )
        and epochs is not None
        and origin in _ORIGINS
        and _is_table(log)
        and _is_table(indexes)
        and _is_offset_index(match[28], log)
    )
    if not is_so or epochs is None:
        return None
    row = RemoteLogSegmentMetadata(
        segment_id, start, end, broker, max_timestamp, event_timestamp, epochs, objects.log_bytes,
        None, SegmentState.COPY_SEGMENT_STARTED, txn_index_empty == b"true",
    )  # fmt: skip
    return WholeSegment(row, objects)


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
