"""`leader-epoch-checkpoint`: the text, and the arithmetic against plain restatements of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    append_entry,
    encode,
    end_offset_for,
    entries_in_range,
    epoch_for_offset,
    parse,
    truncate_from_end,
    truncate_from_start,
)
from tests.kafka_formats.damage import SOURCE, damaged, survives

GOLDEN = bytes.fromhex("300a320a3020300a31203130300a")


def lineage(*entries: tuple[int, int]) -> Epochs:
    return tuple(EpochEntry(*entry) for entry in entries)


def parsed(data: bytes) -> Epochs:
    return parse(data, source=SOURCE)


TWO = lineage((0, 0), (1, 100))
THREE = lineage((2, 10), (4, 20), (7, 30))


def test_the_golden_checkpoint_is_read_and_written() -> None:
    assert parsed(GOLDEN) == TWO
    assert encode(TWO) == GOLDEN
    assert encode(()) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_a_checkpoint_without_entries_is_empty(data: bytes) -> None:
    assert parsed(data) == ()


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"1\n0\n", 0, "version '1'"),
        (b"\n", 0, "version ''"),
        (b"0\nx\n", 2, "not a number"),
        (b"0\n-1\n", 2, "not a number"),
        (b"0\n1\n", 2, "1 entries are announced and 0"),
        (b"0\n1\n0 0\n1 1\n", 2, "1 entries are announced and 2"),
        (b"0\n99999999999999999999\n", 2, "not a number"),
        (b"0\n1\n0\n", 4, "2 fields"),
        (b"0\n1\n0 0 0\n", 4, "2 fields"),
        (b"0\n1\n0  0\n", 4, "2 fields"),
        (b"0\n1\n\n", 4, "2 fields"),
        (b"0\n2\n0 0\n1 x\n", 8, "not a number"),
        (b"0\n1\n1_0 0\n", 4, "not a number"),
        (b"0\n1\n\xd9\xa3 0\n", 4, "not a number"),
        (b"0\n1\n-1 0\n", 4, "not a number"),
        (b"0\n1\n0 0123\n", 4, "not a number"),
        (b"0\n1\n0 -5\n", 4, "not a number"),
        (b"0\n1\n2147483648 0\n", 4, "not a number"),
        (b"0\n1\n0 9223372036854775808\n", 4, "not a number"),
        (b"0\n2\n1 0\n1 5\n", 8, "follows epoch 1"),
        (b"0\n2\n1 5\n2 5\n", 8, "follows epoch 1"),
        (b"0\n1\n0 \xff\n", 4, "UTF-8"),
        (b"0\n1\n0 100", 9, "no end"),
    ],
)
def test_malformed_text_is_corrupt_data_at_its_line(
    data: bytes, position: int, message: str
) -> None:
    with pytest.raises(CorruptData, match=message) as caught:
        parsed(data)
    assert caught.value.position == position


@pytest.mark.parametrize("size", range(1, len(GOLDEN)))
def test_every_truncation_but_that_of_the_count_is_noticed(size: int) -> None:
    # Kafka itself writes an empty file for no entries, and so the version alone is legal.
    assert not survives(parsed, GOLDEN[:size]) or size == 2


@settings(max_examples=100, deadline=None)
@given(damaged(GOLDEN))
def test_damage_is_corrupt_data_or_another_lineage(data: bytes) -> None:
    survives(parsed, data)


@st.composite
def lineages(draw: st.DrawFn) -> Epochs:
    epoch, offset = -1, -1
    entries: list[EpochEntry] = []
    for newer, further in draw(
        st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=6)
    ):
        epoch += newer
        offset += further
        entries.append(EpochEntry(epoch, offset))
    return tuple(entries)


offsets = st.integers(0, 60)


@settings(max_examples=100, deadline=None)
@given(lineages())
def test_what_is_written_is_read(epochs: Epochs) -> None:
    assert parsed(encode(epochs)) == epochs


@settings(max_examples=100, deadline=None)
@given(lineages(), offsets)
def test_the_epoch_of_an_offset_equals_a_plain_scan(epochs: Epochs, offset: int) -> None:
    begun = [entry.epoch for entry in epochs if entry.start_offset <= offset]
    assert epoch_for_offset(epochs, offset) == (begun[-1] if begun else None)


@settings(max_examples=100, deadline=None)
@given(lineages(), offsets, offsets)
def test_truncation_keeps_the_epoch_of_every_offset_that_stays(
    epochs: Epochs, start: int, end: int
) -> None:
    kept = entries_in_range(epochs, start, end)
    assert all(start <= entry.start_offset < end for entry in kept)
    for offset in range(start, end):
        assert epoch_for_offset(kept, offset) == epoch_for_offset(epochs, offset)


@settings(max_examples=100, deadline=None)
@given(lineages(), st.integers(0, 20), offsets)
def test_an_appended_epoch_is_the_last_and_the_lineage_ascends(
    epochs: Epochs, epoch: int, offset: int
) -> None:
    longer = append_entry(epochs, epoch, offset)
    assert all(a.epoch < b.epoch for a, b in pairwise(longer))
    assert all(a.start_offset < b.start_offset for a, b in pairwise(longer))
    assert longer[-1].epoch == epoch
    assert longer[-1].start_offset <= offset


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (5, (4, 30)),
        (7, (7, 99)),
        (8, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_known_one_begins(
    epoch: int, expected: tuple[int, int]
) -> None:
    assert end_offset_for(THREE, epoch, 99) == expected


def test_an_empty_lineage_knows_no_end() -> None:
    assert end_offset_for((), 0, 99) == (-1, -1)
    assert epoch_for_offset((), 5) is None


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (9, THREE),
        (10, THREE),
        (15, lineage((2, 15), (4, 20), (7, 30))),
        (20, lineage((4, 20), (7, 30))),
        (31, lineage((7, 31))),
    ],
)
def test_cutting_the_head_rewrites_the_start_of_the_epoch_that_is_cut(
    offset: int, expected: Epochs
) -> None:
    assert truncate_from_start(THREE, offset) == expected


def test_cutting_the_tail_drops_epochs_that_begin_there() -> None:
    assert truncate_from_end(THREE, 31) == THREE
    assert truncate_from_end(THREE, 30) == THREE[:2]
    assert truncate_from_end(THREE, 0) == ()
    assert truncate_from_end(THREE, -1) == THREE


def test_appending_replaces_what_it_contradicts() -> None:
    assert append_entry((), 3, 5) == lineage((3, 5))
    assert append_entry(THREE, 7, 30) == THREE
    assert append_entry(THREE, 7, 35) == THREE
    assert append_entry(THREE, 7, 25) == lineage((2, 10), (4, 20), (7, 25))
    assert append_entry(THREE, 8, 40) == (*THREE, EpochEntry(8, 40))
    assert append_entry(THREE, 8, 20) == lineage((2, 10), (8, 20))
    assert append_entry(THREE, 3, 40) == lineage((2, 10), (3, 40))


def test_a_range_with_a_negative_start_keeps_the_head() -> None:
    assert entries_in_range(THREE, -1, 25) == THREE[:2]
    assert entries_in_range(THREE, 15, 25) == lineage((2, 15), (4, 20))


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_a_negative_epoch_or_offset_cannot_be_appended(epoch: int, offset: int) -> None:
    with pytest.raises(InvalidRequest):
        append_entry(THREE, epoch, offset)
