"""Manifests read fast: the very text that `Manifest.encode` writes, of a segment that is listed.

To parse the JSON and judge each field takes longer than to read the file. Here one pattern does it,
and what differs from it in a single byte, or does not fit what is listed, goes the general way
(`parse_manifest`, `told_whole`), so that there is one judgement on what is valid.
"""

from __future__ import annotations

import binascii
import re
from functools import lru_cache
from itertools import pairwise

from kafka_formats.crc32c import crc32c
from rlm.adoption_plan import StoredSegment, WholeSegment
from rlm.copy_job import ProducerSnapshotOrigin
from rlm.custom_metadata import CustomMetadata
from rlm.manifest import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, offset_index_problem
from rlm.object_keys import ObjectSuffix
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState, TopicIdPartition

_UINT32_MAX = 2**32 - 1

_DIGITS = "0|[1-9][0-9]{0,17}"
"""Never more than an int64 holds. What is larger goes the general way."""
_NUMBER = f"({_DIGITS})"
_BASE64 = "([A-Za-z0-9+/]*+={0,2})"
_RANGE = rf'\{{"position":{_NUMBER},"size":{_NUMBER}\}}'
_CHECKSUMS = (
    f'"bytes":{_NUMBER},"crc32c":{_NUMBER},"chunkBytes":{_NUMBER},"chunkCrc32c":"{_BASE64}"'
)
_EPOCH = f'"(?:0|[1-9][0-9]{{0,9}})":(?:{_DIGITS})'
_PLACES = {
    "any": f"(?:{_DIGITS})",
    "number": _NUMBER,
    "or_none": f"(-1|{_DIGITS})",
    "range": _RANGE,
    "range_or_null": f"(?:null|{_RANGE})",
    "which": r'([^}]*+\}\},"id":"[^"]*+"\},"startOffset":[0-9]++)',
    "epochs": f"((?:{_EPOCH},)*{_EPOCH})",
    "bool": "(true|false)",
    "origin": "(?:" + "|".join(ProducerSnapshotOrigin) + ")",
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
    '"strandline":{"version":1,"producerSnapshot":"<origin>","log":{<checksums><offset_index>},'
    '"indexes":{<checksums>}}}}'
)
_PATTERN = re.compile(
    re.sub("<([a-z_]+)>", lambda place: _PLACES[place[1]], re.escape(_LAYOUT)).encode()
)
_EPOCH_AND_START = re.compile(rb'"([0-9]+)":([0-9]+)')


def usual_segment(stored: StoredSegment, manifest_bytes: bytes) -> WholeSegment | None:
    """What `whole_segment` says where it says one; None: ask that one."""
    match = _PATTERN.fullmatch(manifest_bytes)
    if match is None or len(manifest_bytes) > MANIFEST_BYTES_MAX:
        return None
    (
        original, offset_at, offset_bytes, time_at, time_bytes, snapshot_at, snapshot_bytes,
        epochs_at, epochs_bytes, transactions_at, transactions_bytes, which,
        end_text, max_timestamp, broker, event_timestamp, epochs_text, txn_index_empty,
        log_text, log_crc, log_chunk, log_table, offset_index,
        indexes_text, indexes_crc, indexes_chunk, indexes_table,
    ) = match.groups()  # fmt: skip
    log_bytes, indexes_bytes, end = int(log_text), int(indexes_text), int(end_text)
    epochs = _epochs(epochs_text)
    if (
        epochs is None
        or which != _which(stored)
        or log_text != original
        or stored.sizes.get(ObjectSuffix.LOG) != log_bytes
        or stored.sizes.get(ObjectSuffix.INDEXES) != indexes_bytes
        or stored.start_offset > end
        or int(offset_at) + int(offset_bytes) > indexes_bytes
        or int(time_at) + int(time_bytes) > indexes_bytes
        or int(snapshot_at) + int(snapshot_bytes) > indexes_bytes
        or int(epochs_at) + int(epochs_bytes) > indexes_bytes
        or (
            transactions_at is not None
            and int(transactions_at) + int(transactions_bytes) > indexes_bytes
        )
        or not _is_table(log_bytes, int(log_chunk), log_table)
        or not _is_table(indexes_bytes, int(indexes_chunk), indexes_table)
        or (
            offset_index is not None
            and not _is_offset_index(offset_index, log_bytes, int(log_chunk))
        )
    ):
        return None
    sums = int(log_crc), int(indexes_crc)
    if max(sums) > _UINT32_MAX:
        return None
    row = RemoteLogSegmentMetadata(
        stored.segment_id, stored.start_offset, end, int(broker), int(max_timestamp),
        int(event_timestamp), epochs, log_bytes, None, SegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty == b"true",
    )  # fmt: skip
    objects = CustomMetadata(
        stored.store, log_bytes, sums[0], indexes_bytes, sums[1],
        len(manifest_bytes), crc32c(manifest_bytes),
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
    """None, where they do not ascend as they are written."""
    found = [(int(epoch), int(start)) for epoch, start in _EPOCH_AND_START.findall(text)]
    if len(found) > 1 and not all(one[0] < next_[0] for one, next_ in pairwise(found)):
        return None
    return tuple(found)


def _is_table(size: int, chunk: int, table: bytes) -> bool:
    """Whether a checksum is there for each chunk."""
    return (
        1 <= chunk <= CHUNK_BYTES_MAX
        and len(table) % 4 == 0
        and len(table) // 4 * 3 - table.count(b"=") == 4 * -(-size // chunk)
    )


def _is_offset_index(text: bytes, size: int, chunk: int) -> bool:
    if len(text) % 4:
        return False
    return offset_index_problem(binascii.a2b_base64(text), size, -(-size // chunk)) is None
