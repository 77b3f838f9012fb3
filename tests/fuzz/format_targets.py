"""Kafka's file formats: record batches, indexes, checkpoints, names. Seeds are captured files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from unittest.mock import patch

import cramjam

from kafka_formats import (
    checkpoint_text,
    compression,
    control_record,
    leader_epoch_checkpoint,
    log_names,
    offset_checkpoint,
    producer_snapshot,
    properties,
    record_batch,
    transaction_index,
    varints,
)
from kafka_formats.batch_scan import BatchScanner, scan
from kafka_formats.compression import Codec, CompressionError, compress
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.primitives import Reader, Writer
from kafka_formats.record_batch import HEADER_BYTES, Record, encode_batch
from kafka_formats.time_index import TimeIndex
from tests.capture.captured import LOG_DIR
from tests.fuzz import repairs
from tests.fuzz.engine import KIB, Target

SOURCE = "the fuzzed bytes"
SEED_BYTES_MAX = 6 * KIB
SEEDS_MAX = 8
DECOMPRESSED_BYTES_MAX = 64 * KIB
_BASE_OFFSET = 1_000
_PLAIN = b"".join(b"record %d " % number for number in range(300))


@cache
def captured(pattern: str) -> list[bytes]:
    """Files of a broker's log directory, none empty, each cut to a length that is quick to read."""
    files = sorted(LOG_DIR.glob(pattern))
    data = [path.read_bytes()[:SEED_BYTES_MAX] for path in files if path.stat().st_size]
    return sorted(set(data), key=len)[:: max(1, len(data) // SEEDS_MAX)][:SEEDS_MAX]


@cache
def captured_batches() -> list[bytes]:
    """Single batches of every codec that the captured logs have, and one of each we write."""
    batches: dict[tuple[int, bool], bytes] = {}
    for path in sorted(LOG_DIR.glob("*/*.log")):
        for batch in scan(path.read_bytes(), source=path.name):
            if len(batch.data) <= SEED_BYTES_MAX:
                kind = (batch.header.attributes, batch.header.record_count > 1)
                batches.setdefault(kind, bytes(batch.data))
    records = [
        Record(number, 1_000 + number, b"k", b"v" * number, (("h", b"x"), ("h", None)))
        for number in range(20)
    ]
    ours = [encode_batch(records, base_offset=0, codec=codec) for codec in Codec]
    return [*batches.values(), *ours]


def words(*texts: str) -> Callable[[], list[bytes]]:
    """Seeds of a parser of text."""
    return lambda: [text.encode() for text in texts]


def text_of(data: bytes) -> str:
    """Any bytes as text, lone surrogates and all: what a file name or a JSON string may hold."""
    return data.decode("utf-8", "surrogateescape")


def _scan_in_pieces(data: bytes) -> None:
    scanner = BatchScanner(SOURCE, batch_bytes_max=8 * KIB)
    step = len(data) % 700 + 1
    for at in range(0, len(data), step):
        for _ in scanner.feed(data[at : at + step]):
            pass
    scanner.finish()
    list(scan(data, source=SOURCE))


def _read_records(data: bytes) -> None:
    for record in record_batch.iter_records(
        data, source=SOURCE, position=0, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
    ):
        if record.key is not None:
            with suppress(CorruptData):
                record_batch.control_record_type(record)


def _read_inner_records(data: bytes) -> None:
    """The records of a batch whose header and compression are right, whatever they are."""
    count, codec = (data[0], Codec(data[1] % len(Codec))) if len(data) > 1 else (1, Codec.NONE)
    frame = bytearray(encode_batch([], base_offset=0, last_offset=2**31 - 1, codec=codec))
    frame[HEADER_BYTES - 4 : HEADER_BYTES] = count.to_bytes(4, "big")
    frame[HEADER_BYTES:] = compress(codec, data[2:])
    _read_records(repairs.whole_batch(bytes(frame)))


def inner_seeds() -> list[bytes]:
    """Record count, codec, and the records of a batch, decompressed."""
    seeds = []
    for batch in captured_batches():
        header = record_batch.parse_header(batch, source=SOURCE, position=0)
        plain = compression.decompress(
            header.codec, batch[HEADER_BYTES:], bytes_max=DECOMPRESSED_BYTES_MAX
        )
        if header.record_count < 256:
            seeds.append(bytes((header.record_count, header.codec)) + plain[:SEED_BYTES_MAX])
    return seeds


def _read_primitives(data: bytes) -> None:
    """The first bytes say which readers the rest goes through."""
    reader = Reader(data[8:], SOURCE)
    reads: tuple[Callable[[], object], ...] = (
        reader.string, reader.bytes_, reader.nullable_bytes, reader.uuid,
        reader.array_length, reader.tagged_fields, reader.uvarint, reader.boolean, reader.int8,
        reader.int16, reader.int32, reader.int64,
    )  # fmt: skip
    for choice in data[:8]:
        reads[choice % len(reads)]()
    reader.expect_end()


def _primitive_seeds() -> list[bytes]:
    writer = Writer()
    writer.string("orders")
    writer.nullable_bytes(None)
    writer.tagged_fields(((0, b"x"), (10_000, b"yy")))
    fixed = bytes((6, 7, 8, 9, 10, 11, 3, 4))
    return [b"\x00\x02\x05" + b"\x08" * 5 + writer.done() + bytes(5), fixed + bytes(33) + b"\x01"]


def _read_varints(data: bytes) -> None:
    end = len(data)
    at = varints.read_varint(data, 0)[1]
    at = varints.read_varlong(data, at)[1]
    varints.read_bytes(data, at, end)


def _decompress_in_steps(codec: Codec, data: bytes) -> bytes:
    """In steps so small that inputs of a few KiB take many, of input and of output."""
    with (
        patch.object(compression, "_INPUT_STEP_BYTES", 512),
        patch.object(compression, "_OUTPUT_STEP_BYTES", KIB),
    ):
        return compression.decompress(codec, data, bytes_max=DECOMPRESSED_BYTES_MAX)


def codec_seeds(codec: Codec) -> list[bytes]:
    """Compressed data as it may stand in a batch."""
    stream = compress(codec, _PLAIN)
    found = [stream, compress(codec, b""), compress(codec, bytes(60 * KIB))]
    if codec is Codec.SNAPPY:
        found += [bytes(cramjam.snappy.compress_raw(_PLAIN)), stream + stream]
    if codec in (Codec.GZIP, Codec.ZSTD):
        found.append(stream + stream)
    return found


def _codec_target(codec: Codec) -> Target:
    return Target(
        f"compression.{codec.name.lower()}",
        ("kafka_formats.compression.decompress", "kafka_formats.snappy_stream.decompress"),
        partial(_decompress_in_steps, codec),
        partial(codec_seeds, codec),
        (CompressionError,),
        # zstd gives what one piece of input stands for at once, see kafka_formats/compression.py
        constant_bytes=(18 << 20 if codec is Codec.ZSTD else 6 * DECOMPRESSED_BYTES_MAX + 1 << 20),
    )


def _batches() -> list[Target]:
    # zstd gives what one piece of input stands for at once; a header of two bytes becomes a tuple
    records_allow = (18 << 20) + 100 * DECOMPRESSED_BYTES_MAX
    return [
        Target(
            "batch_scan.scan",
            ("kafka_formats.batch_scan.scan", "kafka_formats.batch_scan.BatchScanner"),
            _scan_in_pieces,
            lambda: captured("*/*.log"),
            repair=repairs.batches,
        ),
        Target(
            "record_batch.parse_header",
            ("kafka_formats.record_batch.parse_header",),
            partial(record_batch.parse_header, source=SOURCE, position=0),
            captured_batches,
            repair=repairs.whole_batch,
        ),
        Target(
            "record_batch.iter_records",
            ("kafka_formats.record_batch.iter_records",),
            _read_records,
            captured_batches,
            constant_bytes=records_allow,
            repair=repairs.whole_batch,
        ),
        Target(
            "record_batch.iter_records, inside",
            ("kafka_formats.record_batch.decode_records",),
            _read_inner_records,
            inner_seeds,
            constant_bytes=records_allow,
            share=0.5,
        ),
        Target(
            "control_record.parse_control_key",
            ("kafka_formats.control_record.parse_control_key",),
            partial(control_record.parse_control_key, source=SOURCE, position=0),
            lambda: [control_record.control_key(type_) for type_ in (0, 1, 1_000)],
        ),
        Target(
            "varints",
            (
                "kafka_formats.varints.read_varint",
                "kafka_formats.varints.read_varlong",
                "kafka_formats.varints.read_bytes",
            ),
            _read_varints,
            lambda: [b"\x02\x04\x06abc", b"\xff\xff\xff\xff\x0f" + b"\x80" * 9 + b"\x01\x01"],
            (varints.MalformedError,),
        ),
        Target(
            "primitives.Reader",
            ("kafka_formats.primitives.Reader",),
            _read_primitives,
            _primitive_seeds,
            factor=100,  # a tagged field of two bytes becomes a tuple
        ),
        *(_codec_target(codec) for codec in Codec),
    ]


def _binary_files() -> list[Target]:
    return [
        Target(
            "offset_index",
            ("kafka_formats.offset_index.OffsetIndex.parse",),
            partial(OffsetIndex.parse, base_offset=_BASE_OFFSET, source=SOURCE),
            lambda: captured("*/*.index"),
        ),
        Target(
            "time_index",
            ("kafka_formats.time_index.TimeIndex.parse",),
            partial(TimeIndex.parse, base_offset=_BASE_OFFSET, source=SOURCE),
            lambda: captured("*/*.timeindex"),
        ),
        Target(
            "transaction_index",
            ("kafka_formats.transaction_index.parse",),
            partial(transaction_index.parse, source=SOURCE),
            lambda: captured("*/*.txnindex"),
        ),
        Target(
            "producer_snapshot",
            ("kafka_formats.producer_snapshot.parse",),
            partial(producer_snapshot.parse, source=SOURCE),
            lambda: captured("*/*.snapshot"),
            repair=repairs.producer_snapshot,
        ),
        Target(
            "producer_snapshot.parse_open",
            ("kafka_formats.producer_snapshot.parse_open",),
            partial(producer_snapshot.parse_open, source=SOURCE),
            lambda: captured("*/*.snapshot"),
            repair=repairs.producer_snapshot,
        ),
    ]


def _text_files() -> list[Target]:
    return [
        Target(
            "leader_epoch_checkpoint",
            ("kafka_formats.leader_epoch_checkpoint.parse",),
            partial(leader_epoch_checkpoint.parse, source=SOURCE),
            lambda: [*captured("*/leader-epoch-checkpoint"), b"0\n3\n0 0\n2 15\n7 900\n"],
            factor=150,  # a line of one byte becomes a list of words
        ),
        Target(
            "offset_checkpoint",
            (
                "kafka_formats.offset_checkpoint.parse",
                "kafka_formats.checkpoint_text.parse_entries",
                "kafka_formats.checkpoint_text.parse_number",
            ),
            partial(offset_checkpoint.parse, source=SOURCE),
            lambda: captured("*-checkpoint"),
            factor=150,
        ),
        Target(
            "partition.metadata",
            ("kafka_formats.properties.parse_partition_metadata",),
            partial(properties.parse_partition_metadata, source=SOURCE),
            lambda: captured("*/partition.metadata"),
        ),
        Target(
            "meta.properties",
            ("kafka_formats.properties.parse_meta_properties",),
            partial(properties.parse_meta_properties, source=SOURCE),
            lambda: [
                *captured("meta.properties"),
                b"#c\nversion:0\nbroker.id 1\ncluster.id=a\\u0041\\\\\\t\\=b\n",
            ],
            factor=150,
        ),
    ]


def _names() -> list[Target]:
    return [
        Target(
            "log_names",
            (
                "kafka_formats.log_names.parse_segment_file_name",
                "kafka_formats.log_names.parse_partition_directory",
            ),
            lambda data: [
                log_names.parse_segment_file_name(text_of(data)),
                log_names.parse_partition_directory(text_of(data)),
            ],
            words(
                "00000000000000000183.log",
                "00000000000000000183.timeindex",
                "orders-0",
                "orders-2147483647",
                "a-b-0.0123456789abcdef0123456789abcdef-delete",
            ),
            errors=(),
        ),
        Target(
            "topic names",
            (),
            lambda data: log_names.check_topic_name(text_of(data)),
            words("orders", "a.b_c-d", "x" * 249),
            (InvalidRequest,),
        ),
        Target(
            "kafka_uuid",
            ("kafka_formats.kafka_uuid.Uuid.parse",),
            lambda data: Uuid.parse(text_of(data)),
            words(str(Uuid(bytes(range(16)))), str(Uuid(b"\xff" * 16)), str(Uuid(bytes(16)))),
            (InvalidRequest,),
        ),
        Target(
            "checkpoint_text.parse_number",
            ("kafka_formats.checkpoint_text.parse_number",),
            lambda data: checkpoint_text.parse_number(
                text_of(data), source=SOURCE, position=0, largest=2**31 - 1
            ),
            words("0", "7", "2147483647", "-1"),
        ),
    ]


def format_targets() -> list[Target]:
    """All rows of this module."""
    return [*_batches(), *_binary_files(), *_text_files(), *_names()]
