"""The compiled scan sees a log to be right exactly where the careful reader finds nothing wrong."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kafka_formats import offset_index, time_index
from kafka_formats.batch_scan import BatchScanner
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.record_batch import HEADER_BYTES, ControlType, Record, control_key, encode_batch
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.jobs.scrub_log_check import LogCheck
from pipeline.jobs.scrub_log_scan import KnownLog, sound_log
from pipeline.process.compiled import compiled
from pipeline.read.segment_objects import check_chunks
from rlm.data_plane.index_check import IndexCheck
from rlm.format.manifest import ChunkChecksums
from rlmm.segment import RemoteLogSegmentId
from tests.pipeline.source.tiered import partition, uuid

SOURCE = "orders-3/00000000000000001000.log"
START = 1_000
CHUNK = 256


@dataclass(frozen=True)
class Log:
    """A segment as it is stored, and all that is said of it."""

    segment: TieredSegment
    data: bytes
    sums: ChunkChecksums | None
    offset_index: bytes
    time_index: bytes

    def summed_anew(self) -> Log:
        """As if it had been written like this: no chunk tells what is wrong."""
        return replace(self, sums=sums_of(self.data))


def sums_of(data: bytes, chunk_bytes: int = CHUNK) -> ChunkChecksums:
    chunks = [crc32c(data[at : at + chunk_bytes]) for at in range(0, len(data), chunk_bytes)]
    return ChunkChecksums(len(data), crc32c(data), tuple(chunks), chunk_bytes)


def batches(chance: random.Random, count: int, epochs: list[EpochEntry]) -> Iterator[bytes]:
    """Of up to 4 KB, some in transactions, some their markers, with gaps between the offsets."""
    offset = START
    for _ in range(count):
        epoch = max(e.epoch for e in epochs if e.start_offset <= offset)
        behind = min((e.start_offset for e in epochs if e.start_offset > offset), default=2**62)
        offset_max = min(offset + chance.choice((0, 0, 1, 5)), behind - 1)
        producer = chance.choice((-1, -1, 7, 8))
        control = producer >= 0 and chance.random() < 0.3
        if control:
            type_ = chance.choice((ControlType.ABORT, ControlType.COMMIT))
            records = [Record(offset, 5_000 + offset, control_key(type_), b"\0" * 6)]
            offset_max = offset
        else:
            value = chance.randbytes(chance.choice((0, 3, 90, 700, 4_000)))
            time = 5_000 + offset + chance.randrange(-3, 4)
            records = [Record(at, time, None, value) for at in (offset, offset_max)]
            records = records[: 1 if offset == offset_max else 2]
        yield encode_batch(
            records,
            base_offset=offset,
            partition_leader_epoch=epoch,
            producer_id=producer,
            transactional=producer >= 0,
            control=control,
        )
        offset = offset_max + 1 + chance.choice((0, 0, 0, 2))


def made(seed: int, count: int | None = None) -> Log:
    """A sound one, with indexes of an entry every few batches."""
    chance = random.Random(seed)
    epochs = [EpochEntry(2, START - 50)]
    if seed % 2:
        epochs += [EpochEntry(3, START + 9), EpochEntry(6, START + 30)]
    parts = list(batches(chance, count if count is not None else chance.randrange(1, 60), epochs))
    data = b"".join(parts)
    check = IndexCheck(START, lambda: None, lambda: None)
    offsets: list[tuple[int, int]] = []
    scanner = BatchScanner(SOURCE)
    for run in scanner.feed_runs(data):
        check.take(run.headers, run.position)
    for batch in BatchScanner(SOURCE).feed(data):
        if batch.position and chance.random() < 0.4:
            offsets.append((batch.header.last_offset, batch.position))
        end_offset = batch.header.last_offset
    segment = TieredSegment(
        segment_id=RemoteLogSegmentId(partition("orders", 3), uuid(seed + 2)),
        store="main",
        start_offset=START,
        end_offset=end_offset + chance.randrange(3),
        first_offset=START,
        last_offset=end_offset,
        max_timestamp_ms=check.max_timestamp_ms,
        log_bytes=len(data),
        txn_index_empty=True,
        leader_epochs=tuple(epochs),
    )
    return Log(
        segment,
        data,
        None if seed % 5 == 4 else sums_of(data),
        offset_index.encode(offsets, START),
        check.time_index(),
    )


def pieces(data: bytes, piece_bytes: int) -> Iterator[memoryview]:
    """Through one buffer, wiped after each."""
    buffer = memoryview(bytearray(piece_bytes))
    for at in range(0, len(data), piece_bytes):
        piece = data[at : at + piece_bytes]
        buffer[: len(piece)] = piece
        yield buffer[: len(piece)]
        buffer[:] = bytes(piece_bytes)


def is_sound(log: Log, piece_bytes: int) -> bool:
    """As the compiled scan has it."""
    found = sound_log(
        log.segment,
        SOURCE,
        log.sums,
        pieces(log.data, piece_bytes),
        KnownLog(log.segment.log_bytes, log.offset_index, log.time_index),
    )
    return found is not None


def wrong(log: Log) -> list[str]:
    """What the careful reader finds, as a scrub puts it together."""
    found: list[str] = []
    check = LogCheck(
        log.segment, SOURCE, lambda what, *_: found.append(what), log.offset_index, log.time_index
    )
    scanner = BatchScanner(SOURCE)
    try:
        if log.sums is not None:
            check_chunks(memoryview(log.data), 0, log.sums, SOURCE)
        for run in scanner.feed_runs(log.data):
            check.take(run)
        scanner.finish()
    except CorruptData as error:
        return [*found, error.detail]
    if scanner.position != log.segment.log_bytes:
        found.append("zeros follow the last batch")
    differs = (
        check.offset_index_differs(),
        check.time_index_differs(),
        check.largest_timestamp_differs(),
    )
    return found + [each for each in differs if each is not None]


@pytest.mark.parametrize("seed", range(30))
def test_a_sound_log_is_seen_to_be_sound_in_pieces_of_any_size(seed: int) -> None:
    log = made(seed)
    assert wrong(log) == []
    for piece_bytes in (1, 7, 61, 256, 1_000, 1 << 20):
        assert is_sound(log, piece_bytes), piece_bytes


@pytest.mark.parametrize("seed", range(12))
def test_a_turned_bit_is_seen_wherever_the_careful_reader_sees_it(seed: int) -> None:
    """With the chunks' checksums it is seen everywhere; without, or made anew, by the batches."""
    chance = random.Random(seed)
    log = made(seed, 5)
    # All of the headers, and some of the values.
    for at in sorted({*range(400), *chance.choices(range(len(log.data)), k=400)}):
        if at >= len(log.data):
            break
        data = bytearray(log.data)
        data[at] ^= 1 << chance.randrange(8)
        damaged = replace(log, data=bytes(data))
        assert log.sums is None or not is_sound(damaged, 300)
        damaged = damaged.summed_anew()
        assert is_sound(damaged, 300) == (not wrong(damaged)), at


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("which", ["offset_index", "time_index"])
def test_indexes_are_seen_to_be_wrong_as_the_careful_reader_sees_it(which: str, seed: int) -> None:
    log = made(seed, 25)
    stored: bytes = getattr(log, which)
    entry_bytes = 8 if which == "offset_index" else 12
    changed = [stored[:at] for at in range(len(stored))]
    changed += [stored + stored[-entry_bytes:], stored + b"\x7f" * entry_bytes]
    for at in range(len(stored)):
        for bit in range(8):
            data = bytearray(stored)
            data[at] ^= 1 << bit
            changed.append(bytes(data))
    for index in changed:
        change: dict[str, Any] = {which: index}
        damaged = replace(log, **change)
        # An unused entry is for the careful reader to pass over.
        if is_sound(damaged, 4_096):
            assert wrong(damaged) == []
        elif not wrong(damaged):
            assert bytes(entry_bytes) in index or index == b""


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_of_a_log_is_held_against_it(seed: int) -> None:
    log = made(seed)
    segment = log.segment
    epochs = segment.leader_epochs
    for said in (
        replace(segment, max_timestamp_ms=segment.max_timestamp_ms + 1),
        replace(segment, max_timestamp_ms=-1),
        replace(segment, end_offset=segment.end_offset - 3),
        replace(segment, end_offset=START),
        replace(segment, start_offset=START + 1),
        replace(segment, leader_epochs=()),
        replace(segment, leader_epochs=epochs[:1]),
        replace(segment, leader_epochs=(EpochEntry(1, START - 50), *epochs[1:])),
        replace(segment, leader_epochs=(EpochEntry(4, START - 50),)),
        replace(segment, leader_epochs=(EpochEntry(4, 0),), first_offset=START + 4),
        replace(segment, leader_epochs=(EpochEntry(9, 0),), first_offset=2**62),
        replace(segment, leader_epochs=(*epochs, EpochEntry(60, START + 40))),
    ):
        other = replace(log, segment=said)
        assert is_sound(other, 500) == (not wrong(other)), said


@pytest.mark.parametrize("seed", range(10))
def test_logs_of_another_length_or_order_are_not_sound(seed: int) -> None:
    log = made(seed, 12)
    ends = [batch.position for batch in BatchScanner(SOURCE).feed(log.data)]
    first, second = log.data[: ends[1]], log.data[ends[1] : ends[2]]
    for data in (
        log.data[:-1],
        log.data + b"\0",
        log.data + bytes(100),
        log.data[: ends[-1]] + bytes(len(log.data) - ends[-1]),
        second + first + log.data[ends[2] :],
        first + log.data,
        b"",
    ):
        assert not is_sound(replace(log, data=data), 500)
        told = replace(log, data=data, segment=replace(log.segment, log_bytes=len(data)))
        assert not is_sound(told.summed_anew(), 500)


def test_chunk_tables_of_another_length_or_sum_are_not_believed() -> None:
    log = made(3)
    assert log.sums is not None
    sums = log.sums
    assert len(sums.chunks) > 2
    for changed in (
        replace(sums, chunks=sums.chunks[:-1]),
        replace(sums, chunks=(*sums.chunks, 0)),
        replace(sums, chunks=()),
        replace(sums, crc32c=sums.crc32c ^ 1),
        replace(sums, chunk_bytes=CHUNK * 2),
    ):
        assert not is_sound(replace(log, sums=changed), 500) or changed.chunks == ()
    for size in (1, 100, 255, 257, 1 << 40):
        assert is_sound(replace(log, sums=sums_of(log.data, size)), 500)
    with pytest.raises(ValueError, match="chunks of 0 bytes"):
        is_sound(replace(log, sums=replace(sums, chunk_bytes=0)), 500)


def test_a_control_batch_that_cannot_be_read_is_for_the_careful_reader() -> None:
    marker = Record(START, 5, b"\0\0", b"")
    data = encode_batch(
        [marker], base_offset=START, producer_id=4, transactional=True, control=True
    )
    segment = replace(made(1).segment, log_bytes=len(data), end_offset=START, max_timestamp_ms=5)
    segment = replace(segment, leader_epochs=())
    log = Log(segment, data, None, b"", time_index.encode([(5, START)], START))
    assert wrong(log)
    assert not is_sound(log, 500)


def test_lengths_and_offsets_at_their_ends_are_refused() -> None:
    """Nothing wraps around: the largest offset has none behind it."""
    top = 2**63 - 1
    batch = encode_batch([Record(top, 5, None, b"v")], base_offset=top)
    segment = replace(
        made(1).segment,
        start_offset=0,
        end_offset=top,
        log_bytes=2 * len(batch),
        leader_epochs=(),
        max_timestamp_ms=-1,
    )
    assert not is_sound(Log(segment, batch * 2, None, b"", b""), 500)
    log = made(3)
    for length in (-1, 0, 1, 48, 2**31 - 1):
        data = bytearray(log.data)
        data[8:12] = length.to_bytes(4, "big", signed=True)
        assert not is_sound(replace(log, data=bytes(data)).summed_anew(), 500)


def test_transactions_come_out_as_the_careful_reader_has_them() -> None:
    for seed in range(20):
        log = made(seed)
        check = LogCheck(log.segment, SOURCE, lambda *_: None, b"", b"")
        for run in BatchScanner(SOURCE).feed_runs(log.data):
            check.take(run)
        found = sound_log(
            log.segment,
            SOURCE,
            log.sums,
            pieces(log.data, 90),
            KnownLog(len(log.data), log.offset_index, log.time_index),
        )
        assert found is not None
        assert list(found.differences(())) == list(check.transactions.differences(()))


def test_a_scan_that_failed_is_not_taken_for_one_that_ended() -> None:
    module = compiled("pipeline.jobs.log_scan")
    assert module is not None
    log = made(3, 4)
    scan = module.LogScan(
        start_offset=START,
        first_offset=START,
        end_offset=log.segment.end_offset,
        log_bytes=len(log.data),
        crc=None,
        chunk_bytes=CHUNK,
        chunk_crcs=array("I"),
        epochs=array("q"),
        offset_index=b"",
        time_index=b"",
    )
    assert not scan.finish()
    assert scan.take(log.data[:HEADER_BYTES]) == []
    assert not scan.finish()
    turned = bytes([log.data[HEADER_BYTES] ^ 1]) + log.data[HEADER_BYTES + 1 :]
    assert scan.take(turned) is None
    assert not scan.finish()


@pytest.mark.parametrize(
    ("at", "field"),
    [
        (16, b"\x01"),  # magic
        (22, b"\x05"),  # codec
        (22, b"\x07"),
        (22, b"\x0c"),  # zstd, with the append time: fine
        (23, b"\xff\xff\xff\xff"),  # last offset delta
        (23, b"\x7f\xff\xff\xff"),
        (57, b"\xff\xff\xff\xff"),  # number of records
        (57, b"\x7f\xff\xff\xff"),  # which is for `--records` to find
    ],
)
def test_headers_that_cannot_be_are_seen_though_their_checksum_is_right(
    at: int, field: bytes
) -> None:
    log = made(3, 1)
    data = bytearray(log.data)
    data[at : at + len(field)] = field
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    changed = replace(log, data=bytes(data)).summed_anew()
    assert is_sound(changed, 500) == (not wrong(changed))


def test_a_batch_over_the_start_of_an_epoch_is_of_neither() -> None:
    records = [Record(at, 5, None, b"v") for at in (START, START + 4)]
    data = encode_batch(records, base_offset=START, partition_leader_epoch=2)
    segment = replace(
        made(1).segment, log_bytes=len(data), end_offset=START + 4, max_timestamp_ms=5
    )
    index = time_index.encode([(5, START + 4)], START)
    for second in (START + 1, START + 4, START + 5):
        epochs = (EpochEntry(2, START), EpochEntry(3, second))
        log = Log(replace(segment, leader_epochs=epochs), data, None, b"", index)
        assert is_sound(log, 500) == (not wrong(log)) == (second == START + 5)
