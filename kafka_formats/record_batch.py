"""Record batch format version 2 (magic 2), read and written.

A batch is 12 bytes of base offset and length, 49 more bytes of header, then the records, compressed
as one block. Base offset, length and partition leader epoch stand outside the CRC, so that a leader
can stamp them; everything from the attributes on is under it. Source: Kafka's DefaultRecordBatch
and DefaultRecord.

`source` and `position` in these functions are for messages only: the name of the file or object the
bytes come from, and the position there of the batch's first byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_formats import varints
from kafka_formats.compression import (
    Codec,
    CompressionError,
    TooMuchError,
    compress,
    decompress,
)
from kafka_formats.control_record import ControlType as ControlType
from kafka_formats.control_record import control_key as control_key
from kafka_formats.control_record import parse_control_key
from kafka_formats.crc32c import Buffer, crc32c
from kafka_formats.errors import CorruptData, InvalidRequest

LOG_OVERHEAD = 12  # base offset and length, which the length field does not count
HEADER_BYTES = 61
MAGIC = 2
DECOMPRESSED_BYTES_MAX = 64 << 20
HEADERS_MAX = 65_536
"""Most headers in one record. Two bytes of a batch may stand for a header, which takes 40 times as
much as objects; Kafka itself has no limit.
"""

NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_LENGTH_MAGIC = struct.Struct(">i4xb")
_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_FROM = 21
_OLDEST_LENGTH_MIN = 14  # of a magic 0 message: no batch of any version is shorter
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)

_CODEC_MASK = 0x07
_CODEC_MAX = int(Codec.ZSTD)
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
TRANSACTIONAL_OR_CONTROL = _TRANSACTIONAL | _CONTROL


HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a BatchHeader in its order: a scan of a million batches builds only tuples."""


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch. Timestamps are in ms since the epoch; -1 stands for "none".

    A tuple, because a scan makes one for every batch: a frozen dataclass takes four times as long.
    """

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, base offset and length included."""
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        """Last offset the batch stands for, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & _CODEC_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `headers` keep their order and may repeat a key.

    A header key that is not UTF-8 is read with replacement characters, as Kafka's consumer does.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_header(data: Buffer, at: int = 0, *, source: str, position: int) -> BatchHeader:
    """Read the header of the batch at `data[at]`; the records need not be there yet.

    CorruptData if it cannot be a magic 2 batch. The CRC is not checked.
    """
    if len(data) - at >= HEADER_BYTES:
        header = BatchHeader._make(_HEADER.unpack_from(data, at))
        if (
            header.magic == MAGIC
            and header.length >= HEADER_BYTES - LOG_OVERHEAD
            and header.base_offset >= 0
            and 0 <= header.last_offset_delta <= _INT64_MAX - header.base_offset
            and header.record_count >= 0
            and header.attributes & _CODEC_MASK <= _CODEC_MAX
        ):
            return header
    raise CorruptData(_why_no_header(data, at), source=source, position=position)


def _why_no_header(data: Buffer, at: int) -> str:
    left = len(data) - at
    if left <= _MAGIC_AT:
        return f"the record batch is cut off: {left} bytes are left"
    length, magic = _LENGTH_MAGIC.unpack_from(data, at + _LENGTH_AT)
    if length < _OLDEST_LENGTH_MIN:
        return f"the record batch has the impossible length {length}"
    if magic in (0, 1):
        return (
            f"a message of the old format (magic {magic}), and only magic 2 is supported: copy "
            "the topic into a new one, or wait until retention has removed such segments"
        )
    if magic != MAGIC:
        return f"the record batch has the unknown magic {magic}"
    if left < HEADER_BYTES:
        return f"the record batch is cut off inside its header: {left} bytes are left"
    if length < HEADER_BYTES - LOG_OVERHEAD:
        return f"the record batch has the impossible length {length}"
    header = BatchHeader._make(_HEADER.unpack_from(data, at))
    return (
        f"the record batch header is impossible: base offset {header.base_offset}, last offset "
        f"delta {header.last_offset_delta}, {header.record_count} records, attributes "
        f"{header.attributes:#x}"
    )


def check_crc(data: Buffer, at: int, header: BatchHeader, *, source: str, position: int) -> None:
    """Check the CRC of the batch at `data[at]`; CorruptData if it differs or bytes are missing."""
    size = header.size_bytes
    if len(data) - at < size:
        raise CorruptData(
            f"the record batch of {size} bytes is cut off: {len(data) - at} bytes are left",
            source=source,
            position=position,
        )
    computed = crc32c(memoryview(data)[at + _CRC_FROM : at + size])
    if computed != header.crc:
        raise CorruptData(
            f"the record batch at offset {header.base_offset} fails its CRC: "
            f"{header.crc:#010x} is stored, {computed:#010x} computed over {size} bytes",
            source=source,
            position=position,
        )


def whole_batches(
    data: memoryview, at: int, *, batch_bytes_max: int, count_max: int
) -> tuple[list[HeaderFields], int]:
    """The headers of the batches from `data[at]` on whose CRCs match, and where these end.

    Stops before the first incomplete or damaged batch, which `parse_header` and `check_crc` then
    judge: this function only makes the good ones cheap. It calls no other function for a batch,
    since at 1 KiB a batch each call would cost as much as the checksum.
    """
    unpack, size = _HEADER.unpack_from, len(data)
    headers: list[HeaderFields] = []
    while size - at >= HEADER_BYTES and len(headers) < count_max:
        fields = unpack(data, at)
        base_offset, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = fields
        end = at + LOG_OVERHEAD + length
        if (
            magic != MAGIC
            or length < HEADER_BYTES - LOG_OVERHEAD
            or length > batch_bytes_max - LOG_OVERHEAD
            or end > size
            or base_offset < 0
            or not 0 <= delta <= _INT64_MAX - base_offset
            or count < 0
            or attributes & _CODEC_MASK > _CODEC_MAX
            or crc32c(data[at + _CRC_FROM : end]) != crc
        ):
            break
        headers.append(fields)
        at = end
    return headers, at


def iter_records(
    data: Buffer,
    at: int = 0,
    *,
    source: str,
    position: int,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the whole batch at `data[at]`; the caller checks its CRC (`check_crc`).

    CorruptData for anything malformed, with the position of the batch, and for a record of more
    than `HEADERS_MAX` headers. At most `decompressed_bytes_max` bytes are held, and one record.
    """
    header = parse_header(data, at, source=source, position=position)
    try:
        records = _records_of(data, at, header, decompressed_bytes_max, source, position)
    except CompressionError as error:
        raise _malformed(header, error, source, position) from error
    yield from decode_records(records, header, source=source, position=position)


def records_within(
    data: Buffer, header: BatchHeader, *, source: str, position: int, bytes_max: int
) -> bytes | None:
    """The decompressed records of a whole batch, for `decode_records`; None if over `bytes_max`."""
    try:
        return _records_of(data, 0, header, bytes_max, source, position)
    except TooMuchError:
        return None
    except CompressionError as error:
        raise _malformed(header, error, source, position) from error


def decode_records(
    records: bytes, header: BatchHeader, *, source: str, position: int
) -> Iterator[Record]:
    """The records of a batch whose decompressed bytes are `records`; as `iter_records`."""
    if not header.record_count and not records:
        return  # all its records were compacted away
    try:
        yield from _decode_records(records, header)
    except varints.MalformedError as error:
        raise _malformed(header, error, source, position) from error


def _records_of(
    data: Buffer, at: int, header: BatchHeader, bytes_max: int, source: str, position: int
) -> bytes:
    if len(data) - at < header.size_bytes:
        raise CorruptData(
            f"the record batch of {header.size_bytes} bytes is cut off: {len(data) - at} are left",
            source=source,
            position=position,
        )
    body = memoryview(data)[at + HEADER_BYTES : at + header.size_bytes]
    if not header.record_count and not body:
        return b""  # the codec does not matter then
    return decompress(header.codec, body, bytes_max=bytes_max)


def _malformed(header: BatchHeader, error: ValueError, source: str, position: int) -> CorruptData:
    return CorruptData(
        f"the records of the batch at offset {header.base_offset} are malformed: {error}",
        source=source,
        position=position,
    )


def _decode_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Decode `header.record_count` records, which must fill `data` exactly."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    previous_delta = -1
    at = 0
    for _ in range(header.record_count):
        length, at = varints.read_varint(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise varints.MalformedError(f"a record of {length} bytes passes the end of the batch")
        at += 1  # the record's attributes, unused
        timestamp_delta, at = varints.read_varlong(data, at)
        offset_delta, at = varints.read_varint(data, at)
        if not previous_delta < offset_delta <= header.last_offset_delta:
            raise varints.MalformedError(
                f"offset delta {offset_delta} after {previous_delta}, in a batch of "
                f"{header.last_offset_delta + 1} offsets"
            )
        previous_delta = offset_delta
        key, at = varints.read_bytes(data, at, end)
        value, at = varints.read_bytes(data, at, end)
        headers, at = _decode_headers(data, at, end)
        if at != end:
            raise varints.MalformedError(
                f"a record announces {length} bytes and has {length + at - end}"
            )
        timestamp = base_timestamp + timestamp_delta if fixed_timestamp is None else fixed_timestamp
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise varints.MalformedError(f"the timestamp {timestamp} does not fit into 64 bits")
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if at != len(data):
        raise varints.MalformedError(f"{len(data) - at} bytes follow the last of the records")


def _decode_headers(
    data: bytes, at: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = varints.read_varint(data, at)
    if not count:
        return (), at
    if not 0 < count <= end - at:
        raise varints.MalformedError(f"{count} headers are announced in {end - at} bytes")
    if count > HEADERS_MAX:
        raise varints.MalformedError(
            f"a record has {count} headers, over the limit of {HEADERS_MAX}; read it as a batch"
        )
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw_key, at = varints.read_bytes(data, at, end)
        if raw_key is None:
            raise varints.MalformedError("a header has no key")
        value, at = varints.read_bytes(data, at, end)
        headers.append((raw_key.decode("utf-8", "replace"), value))
    return tuple(headers), at


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int,
    codec: Codec = Codec.NONE,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """Encode one batch. Offsets ascend from `base_offset` on; gaps are legal.

    `last_offset` may lie after the last record, and must be given for a batch without records
    (compaction leaves such). With `log_append_time_ms` every record is read back with that time. A
    value that does not fit its field is an InvalidRequest.
    """
    if last_offset is None:
        if not records:
            raise InvalidRequest(
                "a batch without records needs its last offset", field="last_offset"
            )
        last_offset = records[-1].offset
    _check_offsets(records, base_offset, last_offset)
    base_timestamp = records[0].timestamp_ms if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP)
    attributes = (
        codec
        | (_TRANSACTIONAL if transactional else 0)
        | (_CONTROL if control else 0)
        | (0 if log_append_time_ms is None else _LOG_APPEND_TIME)
    )
    plain = bytearray()
    for record in records:
        _encode_record(plain, record, base_offset, base_timestamp)
    fields = (
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp if log_append_time_ms is None else log_append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    body = compress(codec, bytes(plain))
    return seal_batch(fields, body, base_offset=base_offset, leader_epoch=partition_leader_epoch)


def seal_batch(
    fields: tuple[int, ...], body: bytes, *, base_offset: int, leader_epoch: int
) -> bytes:
    """The batch of encoded records, `body`. `fields` are the header's fields after the CRC, in
    its order. InvalidRequest if one of them does not fit.
    """
    try:
        checked = _AFTER_CRC.pack(*fields) + body
        length = HEADER_BYTES - LOG_OVERHEAD + len(body)
        crc = crc32c(checked)
        return _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc) + checked
    except struct.error as error:
        raise InvalidRequest(f"a field of the batch does not fit ({error})") from error


def _check_offsets(records: Sequence[Record], base_offset: int, last_offset: int) -> None:
    previous = base_offset - 1
    for record in records:
        if record.offset <= previous:
            raise InvalidRequest(f"offset {record.offset} follows {previous}", field="offset")
        previous = record.offset
    if last_offset < max(previous, base_offset):
        raise InvalidRequest(f"{last_offset} is before the end of the batch", field="last_offset")


def _encode_record(out: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    timestamp_delta = record.timestamp_ms - base_timestamp
    if not _INT64_MIN <= timestamp_delta <= _INT64_MAX:
        raise InvalidRequest(f"{record.timestamp_ms} is too far away", field="timestamp_ms")
    body = bytearray(1)  # attributes, unused
    varints.write(body, timestamp_delta)
    varints.write(body, record.offset - base_offset)
    varints.write_bytes(body, record.key)
    varints.write_bytes(body, record.value)
    varints.write(body, len(record.headers))
    for key, value in record.headers:
        try:
            varints.write_bytes(body, key.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"the header key {key[:40]!r} is not valid Unicode") from error
        varints.write_bytes(body, value)
    varints.write(out, len(body))
    out += body


def control_record_type(
    record: Record, *, source: str = "control record", position: int = 0
) -> int:
    """The type of a record of a control batch, known to `ControlType` or not."""
    return parse_control_key(record.key, source=source, position=position)
