"""From what the options say to ranges of each partition, and what is told of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.tiered_segment import PartitionBounds
from pipeline.source.offset_limits import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    SpecificOffsets,
    SpecificTimestamps,
)
from pipeline.source.offsets import (
    OffsetRange,
    check_complete,
    holes,
    ranges,
    resolve,
    times_ms,
)
from tests.pipeline.source.tiered import partition, segment

P0, P1 = partition(number=0), partition(number=1)
BOUNDS = {P0: PartitionBounds(10, 100), P1: PartitionBounds(0, 50)}


def test_names_and_their_numbers_mean_each_partitions_own_ends() -> None:
    said = SpecificOffsets({("orders", 0): -2, ("orders", 1): -1})
    assert resolve(EARLIEST, BOUNDS, {}, option="o", no_match=None) == {P0: 10, P1: 0}
    assert resolve(LATEST, BOUNDS, {}, option="o", no_match=None) == {P0: 100, P1: 50}
    assert resolve(said, BOUNDS, {}, option="o", no_match=None) == {P0: 10, P1: 50}


def test_what_is_specific_names_every_partition_and_no_other() -> None:
    said = SpecificTimestamps({("orders", 0): 5, ("payments", 3): 5})
    with pytest.raises(InvalidRequest, match=r"o: .*missing: orders-1.*subscribed: payments-3"):
        check_complete(said, BOUNDS, option="o")
    check_complete(AtTimestamp(5), BOUNDS, option="o")


def test_a_time_means_the_first_record_at_or_after_it() -> None:
    assert times_ms(AtTimestamp(5), [P0, P1]) == {P0: 5, P1: 5}
    each = SpecificTimestamps({("orders", 0): 6, ("orders", 1): 7})
    assert times_ms(each, [P1]) == {P1: 7}
    assert times_ms(EARLIEST, [P0]) == {}
    found = {P0: 42, P1: None}
    starts = resolve(AtTimestamp(5), BOUNDS, found, option="o", no_match=LATEST)
    assert starts == {P0: 42, P1: 50}
    with pytest.raises(InvalidRequest, match="startingTimestamp: all records of orders-1"):
        resolve(AtTimestamp(5), BOUNDS, found, option="startingTimestamp", no_match=None)


@pytest.mark.parametrize(
    ("start", "end", "readable", "words"),
    [
        (10, 100, (10, 100), []),
        (4, 20, (10, 20), ["offsets 4 to 9"]),
        (4, 8, None, ["offsets 4 to 7"]),
        (50, 120, (50, 100), ["offsets 100 to 119"]),
        (110, 120, None, ["110 is after the end"]),
        (110, 100, None, ["110 is after the end"]),
        (110, 110, None, []),
        (60, 40, None, []),
        (0, 200, (10, 100), ["offsets 0 to 9", "offsets 100 to 199"]),
    ],
)
def test_offsets_that_cannot_be_read_are_told_and_the_rest_is_read(
    start: int, end: int, readable: tuple[int, int] | None, words: list[str]
) -> None:
    found, lost = ranges({P0: start}, {P0: end}, BOUNDS)
    assert found == ([] if readable is None else [OffsetRange(P0, *readable)])
    assert [told.split(": ")[0] for told in lost] == ["orders-0"] * len(words)
    assert all(word in told for word, told in zip(words, lost, strict=True))


@given(st.data())
def test_every_offset_asked_for_is_read_or_told_of(data: st.DataObject) -> None:
    offset = st.integers(0, 30)
    start, end = sorted((data.draw(offset), data.draw(offset)))
    earliest, latest = sorted((data.draw(offset), data.draw(offset)))
    found, lost = ranges({P0: start}, {P0: end}, {P0: PartitionBounds(earliest, latest)})
    read = {at for one in found for at in range(one.start, one.end)}
    assert read == set(range(start, end)) & set(range(earliest, latest))
    assert bool(lost) == (read != set(range(start, end)))


def test_holes_between_segments_are_named() -> None:
    segments = [segment(10, 19), segment(20, 29), segment(40, 49), segment(60, 69)]
    assert holes(OffsetRange(P0, 10, 50), segments) == [
        "orders-0: offsets 30 to 39 are in no tiered segment"
    ]
    assert holes(OffsetRange(P0, 12, 30), segments) == []
    assert holes(OffsetRange(P0, 45, 80), segments) == [
        "orders-0: offsets 50 to 59 are in no tiered segment",
        "orders-0: offsets 70 to 79 are in no tiered segment",
    ]
