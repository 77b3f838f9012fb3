"""Scanning: pieces of any size give what the whole gives, and damage is placed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.batch_scan import BatchScanner, scan
from kafka_formats.compression import Codec
from kafka_formats.errors import CorruptData, InternalError, InvalidRequest
from kafka_formats.record_batch import Record, encode_batch
from tests.kafka_formats.damage import SOURCE, damaged, survives


def sample_log() -> tuple[bytes, list[tuple[int, bytes]]]:
    """Some batches of very different sizes, as one file and as (position, batch)."""
    batches: list[tuple[int, bytes]] = []
    offset = position = 0
    for index, size in enumerate((0, 1, 300, 5, 4000, 64, 0)):
        records = [Record(offset + step, step, b"k", bytes(size)) for step in range(index % 3 + 1)]
        codec = Codec(index % 5)
        batch = encode_batch(records, base_offset=offset, codec=codec, partition_leader_epoch=1)
        batches.append((position, batch))
        offset += len(records) + index  # gaps are legal
        position += len(batch)
    return b"".join(batch for _, batch in batches), batches


LOG, BATCHES = sample_log()


def fed(data: bytes, piece_bytes: int) -> list[tuple[int, bytes]]:
    scanner = BatchScanner(SOURCE)
    found: list[tuple[int, bytes]] = []
    for at in range(0, len(data), piece_bytes):
        piece = data[at : at + piece_bytes]
        found += [(batch.position, bytes(batch.data)) for batch in scanner.feed(piece)]
    scanner.finish()
    return found


def scanned(data: bytes) -> list[tuple[int, bytes]]:
    return [(batch.position, bytes(batch.data)) for batch in scan(data, source=SOURCE)]


def test_the_whole_file_gives_its_batches_without_a_copy() -> None:
    assert scanned(LOG) == BATCHES
    assert all(isinstance(batch.data, memoryview) for batch in scan(LOG, source=SOURCE))


def test_positions_count_from_where_the_part_starts() -> None:
    start = BATCHES[2][0]
    found = [batch.position for batch in scan(LOG[start:], source=SOURCE, position=start)]
    assert found == [position for position, _ in BATCHES[2:]]


@pytest.mark.parametrize("piece_bytes", [1, 2, 11, 12, 17, 60, 61, 62, 100, 1000, 1 << 20])
def test_pieces_of_any_size_give_what_the_whole_gives(piece_bytes: int) -> None:
    assert fed(LOG, piece_bytes) == BATCHES


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(LOG)), max_size=12))
def test_cuts_anywhere_give_what_the_whole_gives(cuts: list[int]) -> None:
    scanner = BatchScanner(SOURCE)
    found: list[tuple[int, bytes]] = []
    edges = [0, *sorted(cuts), len(LOG)]
    for start, end in pairwise(edges):
        found += [(batch.position, bytes(batch.data)) for batch in scanner.feed(LOG[start:end])]
    scanner.finish()
    assert found == BATCHES
    assert scanner.position == len(LOG)


def test_an_empty_file_has_no_batches() -> None:
    assert scanned(b"") == []
    assert fed(b"", 1) == []


@pytest.mark.parametrize("piece_bytes", [1, 7, 61, 1 << 20])
@pytest.mark.parametrize("zeros", [12, 13, 60, 61, 62, 5000])
def test_a_preallocated_tail_ends_the_data(piece_bytes: int, zeros: int) -> None:
    assert fed(LOG + bytes(zeros), piece_bytes) == BATCHES
    assert fed(bytes(zeros), piece_bytes) == []


@pytest.mark.parametrize("piece_bytes", [1, 13, 61, 1 << 20])
def test_zeros_in_front_of_more_data_are_a_hole(piece_bytes: int) -> None:
    with pytest.raises(CorruptData, match="hole") as caught:
        fed(LOG + bytes(4096) + LOG, piece_bytes)
    assert caught.value.position == len(LOG)


@pytest.mark.parametrize("piece_bytes", [7, 61, 1 << 20])
def test_every_cut_inside_a_batch_is_placed_at_its_start(piece_bytes: int) -> None:
    position, batch = BATCHES[2]
    whole = LOG[: position + len(batch)]
    for size in range(position + 1, len(whole)):
        with pytest.raises(CorruptData) as caught:
            fed(whole[:size], piece_bytes)
        assert caught.value.position == position


def feed_all(scanner: BatchScanner, data: bytes, piece_bytes: int, found: list[int]) -> None:
    for at in range(0, len(data), piece_bytes):
        found.extend(batch.position for batch in scanner.feed(data[at : at + piece_bytes]))


@pytest.mark.parametrize("piece_bytes", [50, 1 << 20])
def test_batches_before_the_damage_are_given(piece_bytes: int) -> None:
    position, batch = BATCHES[3]
    broken = bytearray(LOG)
    broken[position + len(batch) - 1] ^= 1
    scanner = BatchScanner(SOURCE)
    found: list[int] = []
    with pytest.raises(CorruptData, match="CRC") as caught:
        feed_all(scanner, bytes(broken), piece_bytes, found)
    assert caught.value.position == scanner.position == position
    assert found == [at for at, _ in BATCHES[:3]]


@settings(max_examples=100, deadline=None)
@given(damaged(LOG), st.integers(1, 700))
def test_damage_is_corrupt_data_or_fewer_batches(data: bytes, piece_bytes: int) -> None:
    whole_accepts = survives(scanned, data)
    assert survives(lambda raw: fed(raw, piece_bytes), data) == whole_accepts
    if whole_accepts and data not in (LOG, b""):
        assert [bytes(b.data)[21:] for b in scan(data, source=SOURCE)] == [
            batch[21:] for _, batch in BATCHES[: len(scanned(data))]
        ]


def test_a_batch_over_the_limit_is_refused_before_it_is_held() -> None:
    scanner = BatchScanner(SOURCE, batch_bytes_max=1000)
    huge = LOG[:8] + (2**31 - 1).to_bytes(4, "big") + LOG[12:100]
    with pytest.raises(CorruptData, match="over the limit of 1000"):
        list(scanner.feed(huge))


def test_a_batch_over_the_limit_that_the_data_has_room_for_is_no_damage() -> None:
    (first, *_) = scan(LOG, source=SOURCE)
    size = first.header.size_bytes

    def scanner(size_bytes: int) -> BatchScanner:
        return BatchScanner(
            SOURCE, batch_bytes_max=size - 1, size_bytes=size_bytes, limit="copier.batch_bytes_max"
        )

    with pytest.raises(InvalidRequest, match=rf"has {size} bytes.*: raise the limit") as caught:
        list(scanner(len(LOG)).feed(LOG))
    assert caught.value.field == "copier.batch_bytes_max"
    with pytest.raises(CorruptData):
        list(scanner(size - 1).feed(LOG))


def test_a_scanner_refuses_to_lose_batches_that_nobody_took() -> None:
    scanner = BatchScanner(SOURCE)
    scanner.feed(LOG)
    with pytest.raises(InternalError):
        scanner.feed(LOG)
    with pytest.raises(InternalError):
        scanner.finish()


def test_an_old_message_format_is_named_even_when_it_is_shorter_than_a_new_header() -> None:
    old = bytes(11) + b"\x0e" + bytes(4) + b"\x01" + bytes(9)
    with pytest.raises(CorruptData, match="old format"):
        fed(old, 5)


def test_a_run_is_the_batches_one_behind_another() -> None:
    (run,) = BatchScanner(SOURCE).feed_runs(LOG)
    assert run.position == 0
    assert bytes(run.data) == LOG
    assert [(batch.position, bytes(batch.data)) for batch in run.batches()] == BATCHES


def test_a_run_ends_in_front_of_the_damage_and_at_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    position, batch = BATCHES[3]
    broken = bytearray(LOG)
    broken[position + len(batch) - 1] ^= 1
    runs = BatchScanner(SOURCE).feed_runs(bytes(broken))
    assert len(next(runs).headers) == 3
    with pytest.raises(CorruptData, match="CRC") as caught:
        next(runs)
    assert caught.value.position == position
    monkeypatch.setattr("kafka_formats.batch_scan.RUN_BATCHES_MAX", 2)
    counts = [len(run.headers) for run in BatchScanner(SOURCE).feed_runs(LOG)]
    assert counts == [2, 2, 2, 1]
