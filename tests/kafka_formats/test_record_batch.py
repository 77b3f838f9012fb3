"""Record batches: Kafka's golden bytes, round trips, old formats, and damage under a right CRC."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_formats.bare_records import (
    CONTROL_KEY_BYTES,
    bare_values,
    control_values,
    encode_bare_values,
    encode_control_values,
)
from kafka_formats.compression import Codec
from kafka_formats.crc32c import Buffer, crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.record_batch import (
    HEADERS_MAX,
    BatchHeader,
    ControlType,
    Record,
    check_crc,
    control_key,
    control_record_type,
    encode_batch,
    iter_records,
    parse_header,
)
from tests.kafka_formats.damage import SOURCE, damaged, survives
from tests.kafka_formats.transaction_markers import end_transaction_value

BARE = encode_batch([Record(7, 9, None, b"v" * 300)], base_offset=7)
GOLDEN = bytes.fromhex(
    "00000000000003e8000000440000000402ec6bcade0010000000010000018bcfe568000000018bcfe5680500000000"
    "0000004d0003000000050000000212000000026b0476310010000a020104763200"
)
GOLDEN_RECORDS = (
    Record(1000, 1700000000000, b"k", b"v1"),
    Record(1001, 1700000000005, None, b"v2"),
)
GOLDEN_ABORT = bytes.fromhex(
    "00000000000003ea000000420000000402851b9c690030000000000000018bcfe5680a0000018bcfe5680a00000000"
    "0000004d0003ffffffff000000012000000008000000000c00000000000900"
)


def header_of(data: Buffer, at: int = 0) -> BatchHeader:
    return parse_header(data, at, source=SOURCE, position=at)


def records_of(data: Buffer, at: int = 0) -> tuple[Record, ...]:
    return tuple(iter_records(data, at, source=SOURCE, position=at))


def with_right_crc(batch: bytes) -> bytes:
    """`batch` with the CRC of what is in it now."""
    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def batch_of(body: bytes, *, count: int = 1, last_offset_delta: int = 0) -> bytes:
    """An uncompressed batch with `body` in place of its records."""
    whole = bytearray(encode_batch((), base_offset=0, last_offset=last_offset_delta) + body)
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[57:61] = count.to_bytes(4, "big", signed=True)
    return with_right_crc(bytes(whole))


def test_the_golden_batch_is_read() -> None:
    header = header_of(GOLDEN)
    check_crc(GOLDEN, 0, header, source=SOURCE, position=0)
    assert header == BatchHeader(
        base_offset=1000,
        length=68,
        partition_leader_epoch=4,
        magic=2,
        crc=0xEC6BCADE,
        attributes=0x10,
        last_offset_delta=1,
        base_timestamp=1700000000000,
        max_timestamp=1700000000005,
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
        record_count=2,
    )
    assert (header.size_bytes, header.last_offset, header.codec) == (80, 1001, Codec.NONE)
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert records_of(GOLDEN) == GOLDEN_RECORDS


def test_the_golden_batch_is_written_byte_for_byte() -> None:
    written = encode_batch(
        GOLDEN_RECORDS,
        base_offset=1000,
        partition_leader_epoch=4,
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
        transactional=True,
    )
    assert written == GOLDEN


def test_the_golden_abort_marker_is_read_and_written() -> None:
    header = header_of(GOLDEN_ABORT)
    check_crc(GOLDEN_ABORT, 0, header, source=SOURCE, position=0)
    (marker,) = records_of(GOLDEN_ABORT)
    assert header.is_control
    assert header.is_transactional
    assert control_record_type(marker) == ControlType.ABORT
    assert marker == Record(
        1002, 1700000000010, control_key(ControlType.ABORT), end_transaction_value(9)
    )
    written = encode_batch(
        [marker],
        base_offset=1002,
        partition_leader_epoch=4,
        producer_id=77,
        producer_epoch=3,
        transactional=True,
        control=True,
    )
    assert written == GOLDEN_ABORT


headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=3)
fields = st.none() | st.binary(max_size=100)


@st.composite
def record_lists(draw: st.DrawFn) -> tuple[int, list[Record]]:
    """A base offset, and records behind it with gaps and times in any order."""
    base_offset = draw(st.integers(0, 2**40))
    offset = base_offset - 1
    records: list[Record] = []
    for gap in draw(st.lists(st.integers(1, 1000), min_size=1, max_size=8)):
        offset += gap
        timestamp_ms = draw(st.integers(-1, 2**50))
        key, value = draw(fields), draw(fields)
        records.append(Record(offset, timestamp_ms, key, value, tuple(draw(headers))))
    return base_offset, records


@settings(max_examples=100, deadline=None)
@given(record_lists(), st.sampled_from(Codec), st.integers(0, 9), st.integers(0, 20))
def test_what_is_written_is_read(
    batch: tuple[int, list[Record]], codec: Codec, before: int, behind: int
) -> None:
    base_offset, records = batch
    last_offset = records[-1].offset + behind
    written = encode_batch(records, base_offset=base_offset, codec=codec, last_offset=last_offset)
    data = b"x" * before + written + b"y" * 3
    header = header_of(data, before)
    check_crc(data, before, header, source=SOURCE, position=before)
    assert header.size_bytes == len(written)
    assert (header.codec, header.record_count) == (codec, len(records))
    assert (header.base_offset, header.last_offset) == (base_offset, last_offset)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert list(records_of(data, before)) == records
    assert list(records_of(memoryview(data), before)) == records


def test_with_log_append_time_every_record_has_that_time() -> None:
    written = encode_batch(GOLDEN_RECORDS, base_offset=1000, log_append_time_ms=1800000000000)
    assert header_of(written).is_log_append_time
    assert {record.timestamp_ms for record in records_of(written)} == {1800000000000}


def test_a_delete_horizon_moves_the_base_of_the_timestamps() -> None:
    horizon = 1700000000000 + 60_000
    batch = bytearray(GOLDEN)
    batch[22] |= 0x40
    batch[27:35] = horizon.to_bytes(8, "big")
    assert [record.timestamp_ms for record in records_of(batch)] == [horizon, horizon + 5]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_compaction_emptied_keeps_its_offsets(codec: Codec) -> None:
    batch = bytearray(encode_batch((), base_offset=7, last_offset=9))
    batch[22] |= codec  # an empty batch has no body, whatever its attributes say
    assert (header_of(batch).last_offset, header_of(batch).record_count) == (9, 0)
    assert records_of(batch) == ()


def test_a_header_key_that_is_no_text_is_read_with_replacements() -> None:
    record = bytes.fromhex("00000001010202ff01")
    batch = batch_of(bytes([len(record) * 2]) + record)
    assert records_of(batch)[0].headers == (("\ufffd", None),)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_with_what_to_do(magic: int) -> None:
    old = bytearray(GOLDEN)
    old[16] = magic
    with pytest.raises(CorruptData, match=f"magic {magic}.*copy the topic") as caught:
        parse_header(old, source="00000000000000000000.log", position=4096)
    assert str(caught.value).startswith("00000000000000000000.log at byte 4096")
    short = bytes(11) + b"\x0e" + bytes(4) + bytes([magic]) + bytes(9)
    with pytest.raises(CorruptData, match="old format"):
        header_of(short)


@pytest.mark.parametrize(
    ("at", "raw", "message"),
    [
        (16, "03", "unknown magic 3"),
        (16, "ff", "unknown magic -1"),
        (8, "00000000", "impossible length 0"),
        (8, "80000000", "impossible length -"),
        (8, "00000030", "impossible length 48"),
        (0, "ffffffffffffffff", "base offset -1"),
        (0, "7fffffffffffffff", "last offset delta 1"),
        (23, "ffffffff", "last offset delta -1"),
        (57, "ffffffff", "-1 records"),
        (21, "0005", "attributes 0x5"),
    ],
)
def test_an_impossible_header_is_corrupt_data(at: int, raw: str, message: str) -> None:
    batch = bytearray(GOLDEN)
    batch[at : at + len(raw) // 2] = bytes.fromhex(raw)
    with pytest.raises(CorruptData, match=message):
        header_of(batch)


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_a_cut_batch_is_corrupt_data(size: int) -> None:
    cut = GOLDEN[:size]
    with pytest.raises(CorruptData, match="cut off"):
        records_of(cut)
    with pytest.raises(CorruptData, match="cut off"):
        check_crc(cut, 0, header_of(GOLDEN), source=SOURCE, position=0)


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    for at in range(17, len(GOLDEN)):
        for bit in range(8):
            batch = bytearray(GOLDEN)
            batch[at] ^= 1 << bit
            with pytest.raises(CorruptData):
                check_crc(batch, 0, header_of(batch), source=SOURCE, position=0)


@pytest.mark.parametrize(
    ("body", "count", "message"),
    [
        ("", 1, "end inside a number"),
        ("0e00000000000000", 1, "announces 7 bytes and has 6"),
        ("0c00000001", 1, "passes the end of the batch"),
        ("ffffffff0f", 1, "passes the end of the batch"),
        ("feffffff0f", 1, "passes the end of the batch"),
        ("0c00000001010000", 1, "1 bytes follow"),
        ("0c0000000101000c000000010100", 2, "offset delta 0 after 0"),
        ("0c000002010100", 1, "offset delta 1 after -1"),
        ("0c000001010100", 1, "offset delta -1 after -1"),
        ("0c000000030100", 1, "length -2"),
        ("0c000000060100", 1, "passes the end of its record"),
        ("0c000000010101", 1, "headers are announced"),
        ("0c00000001017e", 1, "headers are announced"),
        ("0e00000001010201", 1, "a header has no key"),
    ],
)
def test_malformed_records_are_corrupt_data(body: str, count: int, message: str) -> None:
    batch = batch_of(bytes.fromhex(body), count=count)
    check_crc(batch, 0, header_of(batch), source=SOURCE, position=0)
    with pytest.raises(CorruptData, match=message):
        records_of(batch)


def test_a_timestamp_past_64_bits_is_corrupt_data() -> None:
    late = encode_batch([Record(0, 1, None, None), Record(1, 2**62, None, None)], base_offset=0)
    late = late[:27] + (2**62).to_bytes(8, "big") + late[35:]
    with pytest.raises(CorruptData, match="does not fit into 64 bits"):
        records_of(late[:27] + (2**63 - 1).to_bytes(8, "big") + late[35:])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_expands_past_the_limit_is_corrupt_data(codec: Codec) -> None:
    batch = encode_batch([Record(0, 1, None, bytes(100_000))], base_offset=0, codec=codec)
    with pytest.raises(CorruptData, match=r"offset 0 .*limit"):
        list(iter_records(batch, source=SOURCE, position=0, decompressed_bytes_max=50_000))


@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_that_no_crc_covers_is_corrupt_data_or_other_records(
    codec: Codec, data: st.DataObject
) -> None:
    good = encode_batch(GOLDEN_RECORDS, base_offset=1000, codec=codec)
    survives(records_of, data.draw(damaged(good)))


def test_what_cannot_be_a_batch_is_an_invalid_request() -> None:
    record = Record(5, 1, None, None)
    with pytest.raises(InvalidRequest, match="last_offset"):
        encode_batch((), base_offset=0)
    with pytest.raises(InvalidRequest, match="offset 5 follows 5"):
        encode_batch([record, record], base_offset=5)
    with pytest.raises(InvalidRequest, match="offset 5 follows 5"):
        encode_batch([record], base_offset=6)
    with pytest.raises(InvalidRequest, match="last_offset"):
        encode_batch([record], base_offset=5, last_offset=4)
    with pytest.raises(InvalidRequest, match="does not fit"):
        encode_batch([record], base_offset=5, producer_epoch=2**15)
    with pytest.raises(InvalidRequest, match="does not fit"):
        encode_batch([record], base_offset=5, last_offset=2**40)
    with pytest.raises(InvalidRequest, match="Unicode"):
        encode_batch([Record(5, 1, None, None, (("\ud800", b""),))], base_offset=5)
    with pytest.raises(InvalidRequest, match="too far"):
        encode_batch([Record(5, -1, None, None), Record(6, 2**63, None, None)], base_offset=5)


def test_a_record_has_at_most_so_many_headers() -> None:
    for count, fits in ((HEADERS_MAX, True), (HEADERS_MAX + 1, False)):
        batch = encode_batch(
            [Record(0, 0, None, None, (("", None),) * count)], base_offset=0, codec=Codec.GZIP
        )
        if fits:
            (record,) = iter_records(batch, source=SOURCE, position=0)
            assert len(record.headers) == count
        else:
            with pytest.raises(CorruptData, match="over the limit of 65536"):
                list(iter_records(batch, source=SOURCE, position=0))


@given(
    values=st.lists(st.binary(max_size=200), min_size=1, max_size=5),
    key=st.none() | st.just(b""),
    headers=st.sampled_from([(), (("h", b""),)]),
    gap=st.integers(0, 1),
    later_ms=st.integers(0, 1),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
    control=st.booleans(),
    append_time_ms=st.none() | st.just(11),
)
@settings(deadline=None)
def test_bare_values_are_what_the_general_way_reads(
    values: list[bytes],
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    gap: int,
    later_ms: int,
    codec: Codec,
    control: bool,
    append_time_ms: int | None,
) -> None:
    *records, last = [Record(5 + at, 9, None, value) for at, value in enumerate(values)]
    records.append(Record(last.offset + gap, 9 + later_ms, key, last.value, headers))
    batch = encode_batch(
        records, base_offset=5, codec=codec, control=control, log_append_time_ms=append_time_ms
    )
    found = bare_values(batch, header_of(batch))
    other_time = later_ms and len(values) > 1
    bare = not (key is not None or headers or gap or codec or control or other_time)
    assert found == (values if bare else None)


@given(
    values=st.lists(st.binary(max_size=200), min_size=1, max_size=70),
    base_offset=st.integers(0, 2**62),
    epoch=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(-1, 2**62),
)
@example([bytes(size % 300) for size in range(1_000)], 0, 0, 0)
@example([bytes(2**20)], 0, 0, 0)
@settings(deadline=None)
def test_bare_values_are_written_as_the_general_way_does(
    values: list[bytes], base_offset: int, epoch: int, timestamp_ms: int
) -> None:
    batch = encode_batch(
        [Record(base_offset + at, timestamp_ms, None, value) for at, value in enumerate(values)],
        base_offset=base_offset,
        partition_leader_epoch=epoch,
    )
    written = encode_bare_values(
        values, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms
    )
    assert written == batch
    assert bare_values(batch, header_of(batch)) == values


@given(
    values=st.lists(st.binary(max_size=200), min_size=1, max_size=70),
    key=st.binary(max_size=70),
    base_offset=st.integers(0, 2**62),
    epoch=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(-1, 2**62),
)
@example([bytes(size % 300) for size in range(5_000)], control_key(1100), 0, 0, 0)
@settings(deadline=None)
def test_control_values_of_one_key_are_written_as_the_general_way_does(
    values: list[bytes], key: bytes, base_offset: int, epoch: int, timestamp_ms: int
) -> None:
    written = encode_control_values(
        values, key=key, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms
    )
    assert written == encode_batch(
        [Record(base_offset + at, timestamp_ms, key, value) for at, value in enumerate(values)],
        base_offset=base_offset,
        partition_leader_epoch=epoch,
        control=True,
    )
    found = control_values(written, header_of(written))
    usual = len(key) == CONTROL_KEY_BYTES and len(values) > 1
    assert found == ((key, values) if usual else None)
    assert bare_values(written, header_of(written)) is None


def test_a_batch_whose_fields_do_not_fit_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        encode_bare_values([b""], base_offset=2**63, leader_epoch=0, timestamp_ms=0)


def test_every_damaged_byte_of_bare_records_means_the_same_both_ways() -> None:
    records = [Record(at, 9, None, bytes(at * 70)) for at in range(3)]
    whole = encode_batch(records, base_offset=0)
    for at in range(61, len(whole)):
        for new in {0, 1, 2, 0x7F, 0x80, 0xFF, whole[at] ^ 1}:
            batch = whole[:at] + bytes((new,)) + whole[at + 1 :]
            found = bare_values(batch, header_of(batch))
            if found is not None:
                read = records_of(batch)
                assert [(each.offset, each.timestamp_ms, each.value) for each in read] == [
                    (offset, 9, value) for offset, value in enumerate(found)
                ]
    for cut in range(61, len(whole)):
        assert bare_values(whole[:cut], header_of(whole)) is None


def test_every_damaged_byte_of_control_records_means_the_same_both_ways() -> None:
    values = [bytes(at * 70) for at in range(3)]
    key = control_key(1100)
    whole = encode_control_values(values, key=key, base_offset=0, leader_epoch=0, timestamp_ms=9)
    for at in range(61, len(whole)):
        for new in {0, 1, 2, 0x7F, 0x80, 0xFF, whole[at] ^ 1}:
            batch = whole[:at] + bytes((new,)) + whole[at + 1 :]
            found = control_values(batch, header_of(batch))
            if found is not None:
                read = records_of(batch)
                assert [
                    (each.offset, each.timestamp_ms, each.key, each.value) for each in read
                ] == [(offset, 9, found[0], value) for offset, value in enumerate(found[1])]
    for cut in range(61, len(whole)):
        assert control_values(whole[:cut], header_of(whole)) is None
    assert control_values(BARE, header_of(BARE)) is None
