# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads manifests of listed segments fast, if they have the very text of `Manifest.encode`.

Parsing the JSON and judging each field takes longer than reading the file. A manifest that differs
from that text in a single byte, or does not fit the listing, goes the general way
(`parse_manifest`, `told_whole`), so one place judges what is valid.
"""

import binascii

from kafka_formats.crc32c import crc32c
from rlm.reconcile.adoption_plan import WholeSegment
from rlm.format.manifest import ProducerSnapshotOrigin
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import CHUNK_BYTES_MAX, MANIFEST_BYTES_MAX, offset_index_problem
from rlm.format.object_keys import ObjectSuffix
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t
from libc.string cimport memcmp, strlen

cdef extern from *:
    """
    #ifndef PYX_SHA256
    #define PYX_SHA256 ""
    #endif
    """
    const char *PYX_SHA256

SOURCE = PYX_SHA256.decode("ascii")

cdef enum:
    DIGITS_MAX = 18  # never more than an int64 holds
    EPOCH_DIGITS_MAX = 10
    UUID_BYTES = 16
    UUID_CHARACTERS = 22

cdef const char *URL_SAFE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
cdef int64_t CHUNK_MAX = CHUNK_BYTES_MAX
cdef object LOG = ObjectSuffix.LOG
cdef object INDEXES = ObjectSuffix.INDEXES
cdef object STARTED = SegmentState.COPY_SEGMENT_STARTED
cdef list ORIGINS = [f'{origin}"'.encode() for origin in ProducerSnapshotOrigin]
cdef tuple LAST_PARTITION = (None, b"")


cdef struct Cursor:
    const char *at
    const char *end


cdef struct Checksums:
    int64_t size
    int64_t crc
    int64_t chunk_bytes


cdef inline bint text(Cursor *cursor, const char *expected) noexcept:
    """Move behind the expected text. After a failure the cursor must not be used."""
    cdef Py_ssize_t size = strlen(expected)
    if cursor.end - cursor.at < size or memcmp(cursor.at, expected, size):
        return False
    cursor.at += size
    return True


cdef inline bint number(Cursor *cursor, int64_t *value, int digits_max=DIGITS_MAX) noexcept:
    cdef const char *begun = cursor.at
    value[0] = 0
    while cursor.at < cursor.end and c"0" <= cursor.at[0] <= c"9":
        if cursor.at - begun == digits_max:
            return False
        value[0] = value[0] * 10 + (cursor.at[0] - c"0")
        cursor.at += 1
    return cursor.at - begun == 1 or (cursor.at > begun and begun[0] != c"0")


cdef inline bint number_or_none(Cursor *cursor, int64_t *value) noexcept:
    if text(cursor, b"-1"):
        value[0] = -1
        return True
    return number(cursor, value)


cdef inline bint index_range(Cursor *cursor, int64_t *reached) noexcept:
    """`reached` is the end of the one that ends last."""
    cdef int64_t position, size
    if not (
        text(cursor, b'{"position":') and number(cursor, &position)
        and text(cursor, b',"size":') and number(cursor, &size) and text(cursor, b"}")
    ):
        return False
    reached[0] = max(reached[0], position + size)
    return True


cdef bint base64(Cursor *cursor, Py_ssize_t *decoded_bytes) noexcept:
    cdef const char *begun = cursor.at
    cdef char each
    cdef Py_ssize_t size
    cdef int padding = 0
    while cursor.at < cursor.end:
        each = cursor.at[0]
        if not (
            c"A" <= each <= c"Z" or c"a" <= each <= c"z" or c"0" <= each <= c"9"
            or each == c"+" or each == c"/"
        ):
            break
        cursor.at += 1
    while padding < 2 and text(cursor, b"="):
        padding += 1
    size = cursor.at - begun
    decoded_bytes[0] = size // 4 * 3 - padding
    return size % 4 == 0


cdef bint checksums(Cursor *cursor, Checksums *found) noexcept:
    """With one for each chunk."""
    cdef Py_ssize_t table_bytes
    return (
        text(cursor, b'"bytes":') and number(cursor, &found.size)
        and text(cursor, b',"crc32c":') and number(cursor, &found.crc)
        and text(cursor, b',"chunkBytes":') and number(cursor, &found.chunk_bytes)
        and text(cursor, b',"chunkCrc32c":"') and base64(cursor, &table_bytes)
        and text(cursor, b'"')
        and found.crc <= UINT32_MAX
        and 1 <= found.chunk_bytes <= CHUNK_MAX
        and table_bytes == 4 * chunks(found)
    )


cdef inline int64_t chunks(Checksums *sums) noexcept:
    return (sums.size + sums.chunk_bytes - 1) // sums.chunk_bytes


cdef bint uuid(Cursor *cursor, const uint8_t *raw) noexcept:
    cdef int at, bits
    if cursor.end - cursor.at < UUID_CHARACTERS:
        return False
    for at in range(UUID_CHARACTERS):
        # Six bits from bit 6 * at on, of two bytes; behind the last there are zeros.
        bits = raw[6 * at // 8] << 8
        if 6 * at // 8 + 1 < UUID_BYTES:
            bits |= raw[6 * at // 8 + 1]
        if cursor.at[at] != URL_SAFE[bits >> (10 - 6 * at % 8) & 63]:
            return False
    cursor.at += UUID_CHARACTERS
    return True


cdef bytes partition_text(object partition):
    """Segments come by partition."""
    global LAST_PARTITION
    last = LAST_PARTITION
    if last[0] is not partition:
        last = LAST_PARTITION = (partition, (
            f'{{"topicIdPartition":{{"topicId":"{partition.topic_id}","topicPartition":'
            f'{{"topic":"{partition.topic}","partition":{partition.partition}}}}},"id":"'
        ).encode())
    return last[1]


cdef tuple leader_epochs(Cursor *cursor):
    """None, where they are not written so, or do not ascend."""
    cdef int64_t epoch, start, before = -1
    cdef list found = []
    while True:
        if not (
            text(cursor, b'"') and number(cursor, &epoch, EPOCH_DIGITS_MAX)
            and text(cursor, b'":') and number(cursor, &start) and epoch > before
        ):
            return None
        found.append((epoch, start))
        before = epoch
        if not text(cursor, b","):
            return tuple(found)


cdef bint offset_index(Cursor *cursor, Checksums *log):
    """None at all, or one that fits."""
    cdef Py_ssize_t decoded_bytes
    cdef const char *begun
    if not text(cursor, b',"chunkOffsetIndex":"'):
        return True
    begun = cursor.at
    if not base64(cursor, &decoded_bytes):
        return False
    index = binascii.a2b_base64(begun[:cursor.at - begun])
    return text(cursor, b'"') and offset_index_problem(index, log.size, chunks(log)) is None


cdef bint open_at_base(Cursor *cursor) noexcept:
    """Not there at all, null, or an object."""
    cdef int64_t producer_id, first_offset
    if not text(cursor, b',"openAtBase":') or text(cursor, b"null") or text(cursor, b"{}"):
        return True
    if not text(cursor, b"{"):
        return False
    while True:
        if not (
            text(cursor, b'"') and number(cursor, &producer_id)
            and text(cursor, b'":') and number(cursor, &first_offset)
        ):
            return False
        if not text(cursor, b","):
            return text(cursor, b"}")


cdef bint origin(Cursor *cursor):
    cdef bytes each
    for each in ORIGINS:
        if text(cursor, each):
            return True
    return False


def usual_segment(object stored, bytes manifest_bytes):
    """The answer of `whole_segment` if it finds one; None: ask that function."""
    cdef Py_ssize_t size = len(manifest_bytes)
    cdef const char *begun = manifest_bytes
    cdef Cursor cursor = Cursor(begun, begun + size)
    cdef Checksums log, indexes
    cdef int64_t original, unused, reached = 0
    cdef int64_t start, end, max_timestamp, broker, event_timestamp
    cdef bint txn_index_empty
    cdef tuple epochs
    cdef object segment_id = stored.segment_id
    cdef object id_ = segment_id.id  # bytes, of its own type
    if size > MANIFEST_BYTES_MAX or not isinstance(id_, bytes) or len(id_) != UUID_BYTES:
        return None
    if not (
        text(&cursor, b'{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":')
        and number(&cursor, &unused)
        and text(&cursor, b',"originalFileSize":') and number(&cursor, &original)
        and text(&cursor, b',"transformedChunkSize":') and number(&cursor, &unused)
        and text(&cursor, b',"finalTransformedChunkSize":') and number(&cursor, &unused)
        and text(&cursor, b'},"segmentIndexes":{"offset":') and index_range(&cursor, &reached)
        and text(&cursor, b',"timestamp":') and index_range(&cursor, &reached)
        and text(&cursor, b',"producerSnapshot":') and index_range(&cursor, &reached)
        and text(&cursor, b',"leaderEpoch":') and index_range(&cursor, &reached)
        and text(&cursor, b',"transaction":')
        and (text(&cursor, b"null") or index_range(&cursor, &reached))
        and text(&cursor, b'},"compression":false,"remoteLogSegmentMetadata":{"remoteLogSegmentId":')
        and text(&cursor, partition_text(segment_id.partition))
        and uuid(&cursor, <const uint8_t *>PyBytes_AS_STRING(id_))
        and text(&cursor, b'"},"startOffset":') and number(&cursor, &start)
        and text(&cursor, b',"endOffset":') and number(&cursor, &end)
        and text(&cursor, b',"maxTimestampMs":') and number_or_none(&cursor, &max_timestamp)
        and text(&cursor, b',"brokerId":') and number_or_none(&cursor, &broker)
        and text(&cursor, b',"eventTimestampMs":') and number_or_none(&cursor, &event_timestamp)
        and text(&cursor, b',"segmentLeaderEpochs":{')
    ):
        return None
    epochs = leader_epochs(&cursor)
    if epochs is None or not text(&cursor, b'},"txnIdxEmpty":'):
        return None
    txn_index_empty = text(&cursor, b"true")
    if not (
        (txn_index_empty or text(&cursor, b"false"))
        and text(&cursor, b',"strandline":{"version":1,"producerSnapshot":"') and origin(&cursor)
        and text(&cursor, b',"log":{') and checksums(&cursor, &log) and offset_index(&cursor, &log)
        and text(&cursor, b'},"indexes":{') and checksums(&cursor, &indexes)
        and text(&cursor, b"}") and open_at_base(&cursor)
        and text(&cursor, b"}}}") and cursor.at == cursor.end
    ):
        return None
    sizes = stored.sizes
    if not (
        stored.start_offset == start <= end
        and sizes.get(LOG) == log.size == original
        and sizes.get(INDEXES) == indexes.size >= reached
    ):
        return None
    row = RemoteLogSegmentMetadata(
        segment_id, start, end, broker, max_timestamp, event_timestamp, epochs, log.size, None,
        STARTED, txn_index_empty,
    )
    objects = CustomMetadata(
        stored.store, log.size, log.crc, indexes.size, indexes.crc, size, crc32c(manifest_bytes)
    )
    return WholeSegment(row, objects)
