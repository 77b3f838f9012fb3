"""Indexes held against the batches, and made anew where they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_formats import offset_index, time_index
from kafka_formats.batch_scan import scan
from kafka_formats.errors import CorruptData
from kafka_formats.offset_index import OffsetIndex
from kafka_formats.record_batch import BatchHeader
from kafka_formats.time_index import TimeIndex
from rlm.data_plane.index_check import IndexCheck
from rlm.local_log.log_dir import find_partitions
from tests.rlm.broker_files import CAPTURED, FIRST_TIMESTAMP_MS, ReplicaWriter, write_log_dir

Read = Callable[[], bytes | None]


def headers(log: bytes) -> list[tuple[BatchHeader, int]]:
    return [(batch.header, batch.position) for batch in scan(log, source="log")]


def checked(log: bytes, index: Read, times: Read, base: int = 0) -> IndexCheck:
    check = IndexCheck(base, index, times)
    for header, position in headers(log):
        check.take([header], position)
    return check


def given(data: bytes | None) -> Read:
    return lambda: data


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> ReplicaWriter:
    """Forty batches of three records, about 700 bytes each: several index entries."""
    replica = ReplicaWriter(write_log_dir(tmp_path_factory.mktemp("log")), next_offset=0)
    for _ in range(40):
        replica.append(3, value_bytes=200)
    replica.roll()
    return replica


@pytest.fixture(scope="module")
def log(segment: ReplicaWriter) -> bytes:
    return segment.path(0, ".log").read_bytes()


@pytest.fixture(scope="module")
def right(segment: ReplicaWriter) -> tuple[bytes, bytes]:
    return (
        segment.path(0, ".index").read_bytes(),
        segment.path(0, ".timeindex").read_bytes(),
    )


def test_right_indexes_are_kept(log: bytes, right: tuple[bytes, bytes]) -> None:
    check = checked(log, given(right[0]), given(right[1]))
    assert (check.offset_index(), check.time_index()) == right
    assert len(right[0]) > 16
    assert check.max_timestamp_ms == FIRST_TIMESTAMP_MS + 119


def test_a_preallocated_tail_is_cut(log: bytes, right: tuple[bytes, bytes]) -> None:
    check = checked(log, given(right[0] + bytes(800)), given(right[1] + bytes(1200)))
    assert (check.offset_index(), check.time_index()) == right


def test_captured_indexes_are_right_and_kept() -> None:
    """Also those of compacted segments, whose entries point at what compaction wrote."""
    for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions:
        for segment in partition.segments[:-1]:
            index = segment.log_path.with_suffix(".index").read_bytes()
            times = segment.log_path.with_suffix(".timeindex").read_bytes()
            check = checked(
                segment.log_path.read_bytes(), given(index), given(times), segment.base_offset
            )
            assert (check.offset_index(), check.time_index()) == (index, times)


def test_missing_indexes_are_made_as_the_broker_makes_them(
    log: bytes, right: tuple[bytes, bytes]
) -> None:
    check = checked(log, given(None), given(None))
    assert (check.offset_index(), check.time_index()) == right


def too_large() -> bytes | None:
    raise CorruptData("too large", source="index", position=0)


@pytest.mark.parametrize("damaged", [too_large, given(b"\x00"), given(b"\xff" * 24)])
def test_unreadable_indexes_are_made_anew(
    log: bytes, right: tuple[bytes, bytes], damaged: Read
) -> None:
    check = checked(log, damaged, damaged)
    assert (check.offset_index(), check.time_index()) == right


def test_whatever_bit_is_flipped_no_reader_is_sent_past_its_batch(
    log: bytes, right: tuple[bytes, bytes]
) -> None:
    batches = headers(log)
    starts = {position: header.base_offset for header, position in batches}
    for at in range(len(right[0]) * 8):
        damaged = bytearray(right[0])
        damaged[at // 8] ^= 1 << at % 8
        data = checked(log, given(bytes(damaged)), given(right[1])).offset_index()
        index = OffsetIndex.parse(data, base_offset=0, source="made")
        for offset in range(120):
            assert starts[index.lookup(offset)] <= offset


def test_whatever_bit_is_flipped_no_timestamp_is_searched_too_late(
    log: bytes, right: tuple[bytes, bytes]
) -> None:
    batches = headers(log)
    for at in range(len(right[1]) * 8):
        damaged = bytearray(right[1])
        damaged[at // 8] ^= 1 << at % 8
        data = checked(log, given(right[0]), given(bytes(damaged))).time_index()
        index = TimeIndex.parse(data, base_offset=0, source="made")
        for header, _ in batches:
            _, from_offset = index.lookup(header.max_timestamp)
            assert from_offset <= header.last_offset


def test_an_entry_behind_the_log_is_not_kept(log: bytes, right: tuple[bytes, bytes]) -> None:
    entries = OffsetIndex.parse(right[0], base_offset=0, source="right").entries
    longer = offset_index.encode([*entries, (500, len(log) + 10)], 0)
    times = TimeIndex.parse(right[1], base_offset=0, source="right").entries
    later = time_index.encode([*times, (FIRST_TIMESTAMP_MS + 5_000, 500)], 0)
    check = checked(log, given(longer), given(later))
    assert (check.offset_index(), check.time_index()) == right


def test_a_time_index_that_ends_too_early_is_made_anew(
    log: bytes, right: tuple[bytes, bytes]
) -> None:
    check = checked(log, given(right[0]), given(right[1][:-12]))
    assert check.time_index() == right[1]


def test_a_segment_without_batches_has_empty_indexes() -> None:
    check = checked(b"", given(None), given(b""))
    assert (check.offset_index(), check.time_index()) == (b"", b"")
    assert check.max_timestamp_ms == -1


def test_batches_without_timestamps_make_no_time_entries(tmp_path: Path) -> None:
    header = BatchHeader(0, 100, 0, 2, 0, 0, 9, -1, -1, -1, -1, -1, 10)
    check = IndexCheck(0, given(None), given(None))
    check.take([header], 0)
    assert check.time_index() == b""


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("number", [0, 3])
def test_an_entry_that_is_off_by_one_has_its_index_made_anew(
    log: bytes, right: tuple[bytes, bytes], number: int, by: int
) -> None:
    """A time between those of two batches would have records of the second searched too late."""
    offsets = list(OffsetIndex.parse(right[0], base_offset=0, source="right").entries)
    times = list(TimeIndex.parse(right[1], base_offset=0, source="right").entries)
    offsets[number] = (offsets[number][0] + by, offsets[number][1])
    times[number] = (times[number][0] + by, times[number][1])
    changed = offset_index.encode(offsets, 0), time_index.encode(times, 0)
    assert changed != right
    check = checked(log, given(changed[0]), given(changed[1]))
    assert (check.offset_index(), check.time_index()) == right


def test_an_entry_of_several_batches_appended_at_once_is_right(log: bytes) -> None:
    """A follower appends what one fetch brought: the entry names its first byte and last offset."""
    ends = [(header.last_offset, position) for header, position in headers(log)]
    entries = [(ends[9][0], ends[6][1]), (ends[20][0], ends[15][1])]
    written = offset_index.encode(entries, 0)
    assert checked(log, given(written), given(None)).offset_index() == written
    overlapping = offset_index.encode([(ends[15][0], ends[6][1]), (ends[20][0], ends[12][1])], 0)
    assert checked(log, given(overlapping), given(None)).offset_index() != overlapping
