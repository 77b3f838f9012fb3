"""What a decoder gives, keeps back and refuses; by both of its readers."""

from __future__ import annotations

import logging
import random
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import zstandard
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_formats.compression import Codec, CompressionError
from kafka_formats.compression import decompress as carefully
from kafka_formats.control_record import ControlType, control_key
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.transaction_index import AbortedTransaction
from pipeline.decode.batch_decoder import BatchDecoder, rows_kind
from pipeline.decode.kernel_rows import KernelRows
from pipeline.decode.pure_rows import PureRows
from pipeline.decode.quick_decompress import QuickDecompressor, zstd_frame_bytes_max
from pipeline.decode.rows import RowsKind, Slice
from pipeline.decode.schema import COLUMNS, arrow_schema
from pipeline.process.compiled import compiled
from tests.fuzz.bombs import CODEC_BOMBS
from tests.pipeline.decode.decoding import BOTH, SOURCE, decode, table

MIB = 1 << 20
both = pytest.mark.parametrize("rows", BOTH, ids=lambda rows: rows.__name__)


def plain(*offsets: int, **options: object) -> bytes:
    """A batch with a record for each of these offsets."""
    records = [Record(offset, 1_000 + offset, b"k", b"v%d" % offset) for offset in offsets]
    return encode_batch(records, base_offset=offsets[0], **options)  # type: ignore[arg-type]


def offsets_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


@both
def test_a_row_has_what_kafkas_own_source_gives(rows: RowsKind) -> None:
    headers = (("trace", b"\x01"), ("trace", None), ("", b""))
    log = encode_batch(
        [Record(7, 1_700_000_000_123, None, b"v", headers), Record(9, -1, b"", None)],
        base_offset=7,
    ) + encode_batch([Record(10, 5, b"k", b"")], base_offset=10, log_append_time_ms=86_400_000)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    created = epoch + timedelta(milliseconds=1_700_000_000_123)
    pairs = [{"key": key, "value": value} for key, value in headers]
    assert table(decode(rows, log)).to_pydict() == {
        "key": [None, b"", b"k"],
        "value": [b"v", None, b""],
        "topic": ["orders"] * 3,
        "partition": [3] * 3,
        "offset": [7, 9, 10],
        "timestamp": [created, epoch - timedelta(milliseconds=1), epoch + timedelta(days=1)],
        "timestampType": [0, 0, 1],
        "headers": [pairs, None, None],
    }


def test_the_schema_is_the_one_that_spark_demands_to_the_last_name() -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = (
        BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(),
        IntegerType(), ArrayType(header),
    )  # fmt: skip
    fields = [StructField(name, kind) for name, kind in zip(COLUMNS, types, strict=True)]
    assert to_arrow_schema(StructType(fields), timezone="UTC").equals(arrow_schema())
    some = ("offset", "key")
    wanted = StructType([field for name in some for field in fields if field.name == name])
    assert to_arrow_schema(wanted, timezone="UTC").equals(arrow_schema(some))


@pytest.mark.parametrize("columns", [("offset", "Value"), (), ("key", "key")])
def test_columns_that_cannot_be_are_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="columns"):
        arrow_schema(columns)


@both
@pytest.mark.parametrize("codec", Codec)
def test_a_slice_has_its_offsets_and_no_more(rows: RowsKind, codec: Codec) -> None:
    log = b"".join(plain(*range(at, at + 10, 2), codec=codec) for at in range(0, 100, 10))
    found = decode(rows, log, first_offset=13, last_offset=44, piece_bytes=50)
    assert offsets_of(found) == list(range(14, 45, 2))


@both
def test_behind_its_last_offset_a_slice_needs_no_more_bytes(rows: RowsKind) -> None:
    decoder = BatchDecoder(("offset",), Slice("t", 0, SOURCE, last_offset=5), rows=rows)
    log = plain(0, 5) + plain(6)
    assert list(decoder.feed(memoryview(log)[:-1])) == []
    before = decoder.done
    assert list(decoder.feed(memoryview(log)[-1:])) == []
    assert (before, decoder.done) == (False, True)
    assert list(decoder.feed(memoryview(b"never looked at"))) == []
    assert offsets_of(list(decoder.finish())) == [0, 5]


@both
def test_bytes_that_end_inside_a_wanted_batch_are_an_error(rows: RowsKind) -> None:
    with pytest.raises(CorruptData, match="the file ends inside a record batch"):
        decode(rows, (plain(0) + plain(1))[:-3])


@both
def test_zeros_behind_the_last_batch_are_an_error(rows: RowsKind) -> None:
    with pytest.raises(CorruptData, match=rf"byte {len(plain(0))}: zeros"):
        decode(rows, plain(0) + bytes(100))


@both
def test_what_is_behind_a_slice_is_looked_at_where_its_order_is_checked(rows: RowsKind) -> None:
    part = Slice("t", 0, SOURCE, last_offset=5, unproven=(0, 9))
    decoder = BatchDecoder(("offset",), part, rows=rows)
    assert list(decoder.feed(memoryview(plain(0) + plain(7)))) == []
    assert decoder.done
    with pytest.raises(CorruptData, match="5 to 5 is not within 8 to 9"):
        list(decoder.feed(memoryview(plain(5))))


@both
def test_who_reads_the_committed_sees_no_aborted_record_and_nobody_a_marker(rows: RowsKind) -> None:
    def of(producer_id: int, *offsets: int) -> bytes:
        return plain(*offsets, producer_id=producer_id, transactional=True)

    def marker(producer_id: int, offset: int, type_: ControlType) -> bytes:
        record = Record(offset, 0, control_key(type_), b"\0" * 6)
        return encode_batch(
            [record], base_offset=offset, producer_id=producer_id, transactional=True, control=True
        )

    log = (
        *(of(1, 0), of(2, 1), plain(2, producer_id=1), of(1, 3), marker(1, 4, ControlType.ABORT)),
        *(marker(2, 5, ControlType.COMMIT), of(1, 6), marker(1, 7, ControlType.COMMIT)),
    )
    aborted = [AbortedTransaction(1, 0, 4, 5)]
    seen = {
        committed: offsets_of(
            decode(rows, b"".join(log), aborted=aborted, read_committed=committed)
        )
        for committed in (True, False)
    }
    assert seen == {True: [1, 2, 6], False: [0, 1, 2, 3, 6]}


@both
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_are_refused_by_their_name(rows: RowsKind, magic: int) -> None:
    old = bytearray(plain(1))
    old[16] = magic
    with pytest.raises(CorruptData, match=rf"byte {len(plain(0))}: .* old .*magic {magic}"):
        decode(rows, plain(0) + bytes(old))


@both
def test_offsets_that_do_not_ascend_are_refused_though_no_crc_covers_them(rows: RowsKind) -> None:
    with pytest.raises(CorruptData, match=rf"byte {len(plain(0))}: .* 0 follows offset 0"):
        decode(rows, plain(0) + plain(0))


@both
def test_a_time_that_spark_cannot_hold_is_refused_and_readable_without_it(rows: RowsKind) -> None:
    log = encode_batch([Record(4, 2**62, None, None)], base_offset=4)
    with pytest.raises(CorruptData, match=f"{2**62} of offset 4 .* without the column timestamp"):
        decode(rows, log)
    assert offsets_of(decode(rows, log, columns=("offset",))) == [4]


@both
def test_a_batch_that_holds_too_much_is_refused_in_bounds(rows: RowsKind) -> None:
    for codec in Codec:
        bomb = encode_batch([Record(0, 0, None, bytes(4 * MIB))], base_offset=0, codec=codec)
        with pytest.raises(
            InvalidRequest, match=r"is too large .*limit.*: raise the limit"
        ) as caught:
            decode(rows, bomb, records_bytes_max=2 * MIB)
        assert caught.value.field == "maxBatchBytes"
        read = decode(rows, bomb, records_bytes_max=5 * MIB)
        assert [len(value) for value in table(read)["value"].to_pylist()] == [4 * MIB]


@pytest.mark.parametrize("name", [name for name in CODEC_BOMBS if name.endswith("announces")])
def test_the_size_that_compressed_data_announces_is_not_believed(name: str) -> None:
    codec, bomb = CODEC_BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            QuickDecompressor().decompress(codec, bomb(), bytes_max=64 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


@both
def test_a_large_batch_is_given_in_parts_whose_size_is_bounded(rows: RowsKind) -> None:
    count = 3_000
    records = [Record(at, 0, None, bytes(4_000)) for at in range(count)]
    log = encode_batch(records, base_offset=0, codec=Codec.ZSTD)
    found = decode(rows, log, records_bytes_max=16 * MIB, output_bytes=MIB)
    assert offsets_of(found) == list(range(count))
    assert max(batch.nbytes for batch in found) < MIB + 5_000
    assert len(found) == -(-count * 4_046 // MIB)


@both
def test_many_small_records_are_cut_by_their_number(rows: RowsKind) -> None:
    records = [Record(at, 0, None, None) for at in range(150_000)]
    found = decode(
        rows,
        encode_batch(records, base_offset=0),
        records_bytes_max=8 * MIB,
        columns=("offset",),
        output_bytes=100 * MIB,
    )
    assert [batch.num_rows for batch in found] == [65_536, 65_536, 150_000 - 2 * 65_536]
    assert offsets_of(found) == list(range(150_000))


@both
def test_batches_stay_what_they_are_while_the_decoder_goes_on(rows: RowsKind) -> None:
    """`decode` wipes its buffer after each piece: no batch may view it."""
    log = b"".join(plain(at) for at in range(200))
    found = decode(rows, log, output_bytes=200, piece_bytes=80)
    assert len(found) > 20
    assert table(found)["value"].to_pylist() == [b"v%d" % at for at in range(200)]


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if there were no kernel."""
    monkeypatch.setitem(sys.modules, "pipeline.decode.kernel", None)
    compiled.cache_clear()
    yield
    compiled.cache_clear()


@pytest.mark.usefixtures("unbuilt")
def test_without_the_kernel_the_pure_reader_reads_and_once_it_is_said_how_to_build(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        decoder = BatchDecoder(("offset",), Slice("t", 0, SOURCE))
        assert list(decoder.feed(memoryview(plain(0, 1)))) == []
        assert offsets_of(list(decoder.finish())) == [0, 1]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "make .venv/.dev" in caplog.text
    assert rows_kind() is PureRows


def test_with_the_kernel_the_kernel_reads() -> None:
    assert rows_kind() is KernelRows


def test_a_kernel_of_another_source_is_not_used_and_once_it_is_said_how_to_build(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipeline.decode.kernel.SOURCE", "0" * 64)
    compiled.cache_clear()
    try:
        assert [rows_kind(), rows_kind()] == [PureRows, PureRows]
    finally:
        compiled.cache_clear()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "make .venv/.dev" in caplog.text


def test_a_zstd_frame_of_any_size_comes_out_whole_or_not_at_all() -> None:
    """As the careful reader judges, with and without the size and checksum that it may carry."""
    chance = random.Random(3)
    for size in (0, 1, 1_000, 128 << 10, (128 << 10) + 1, MIB):
        plain = bytes(size // 2) + chance.randbytes(size - size // 2)
        for announced, checked in ((True, False), (False, True), (False, False)):
            frame = zstandard.ZstdCompressor(
                write_content_size=announced, write_checksum=checked
            ).compress(plain)
            quick = QuickDecompressor()
            for data in (frame, frame[:-1], frame[:-4], frame + b"x", frame + frame, frame[:5]):
                try:
                    expected = carefully(Codec.ZSTD, data, bytes_max=4 * MIB)
                except CompressionError:
                    with pytest.raises(CompressionError):
                        quick.decompress(Codec.ZSTD, data, bytes_max=4 * MIB)
                else:
                    assert quick.decompress(Codec.ZSTD, data, bytes_max=4 * MIB) == expected
            bound = zstd_frame_bytes_max(frame)
            assert bound is not None
            assert bound >= size
            assert zstd_frame_bytes_max(frame + frame) is None
