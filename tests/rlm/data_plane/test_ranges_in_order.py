"""The bytes fetched ahead: only of readers that go on, within bounds, nothing twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.ranges_in_order import (
    IDLE_S,
    READER_BYTES_MAX,
    READER_BYTES_MIN,
    READERS_MAX,
    Ahead,
    AskedRange,
    RangesInOrder,
)
from rlmm.segment import RemoteLogSegmentId

MIB = 1 << 20
PARTITION = TopicIdPartition("orders", Uuid(b"orders-topic-id!"), 0)
LOG_BYTES = 32 * MIB


def segment(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16)))


def asked(start: int, end: int, number: int = 0) -> AskedRange:
    return AskedRange(segment(number), start, end, LOG_BYTES, segment(number + 1))


def test_a_first_range_is_no_order_yet_and_the_second_fetches_as_much_again() -> None:
    ranges = RangesInOrder(64 * MIB)
    assert ranges.took(asked(0, MIB), 0) is None
    assert ranges.took(asked(MIB - 100, 2 * MIB - 100), 0) == Ahead(2 * MIB - 100, 3 * MIB - 100)


def test_a_reader_that_goes_on_gets_a_longer_lead_up_to_the_bound() -> None:
    ranges = RangesInOrder(64 * MIB)
    leads = []
    until = 0
    for number in range(22):
        ahead = ranges.took(asked(number * MIB, (number + 1) * MIB), number)
        if ahead is not None:
            until = ahead.end + ahead.following_end
        leads.append((until - (number + 1) * MIB) // MIB)
    # Half of the bound is asked for at a time: a request costs the same whatever its size.
    assert leads == [-1, 1, 2, 4, 8, *(16, 15, 14, 13, 12, 11, 10, 9) * 2, 16]


def test_ranges_here_and_there_and_whole_logs_fetch_nothing_ahead() -> None:
    ranges = RangesInOrder(64 * MIB)
    for start in (0, 9 * MIB, 3 * MIB, 3 * MIB, 20 * MIB, 19 * MIB):
        assert ranges.took(asked(start, start + MIB), 0) is None
    for number in (2, 4, 6):
        assert ranges.took(asked(0, LOG_BYTES, number), 0) is None


def test_the_lead_goes_over_to_the_next_log_and_on_from_its_start() -> None:
    ranges = RangesInOrder(64 * MIB)
    starts = range(LOG_BYTES - 18 * MIB, LOG_BYTES, MIB)
    found = [ranges.took(asked(at, at + MIB), 0) for at in starts]
    assert [each for each in found if each and each.following_end] == [
        Ahead(LOG_BYTES - 5 * MIB, LOG_BYTES, 4 * MIB),
        Ahead(LOG_BYTES, LOG_BYTES, 12 * MIB),
    ]
    for at in range(0, 3 * MIB, MIB):
        assert ranges.took(asked(at, at + MIB, 1), 0) is None  # nine are there yet
    assert ranges.took(asked(3 * MIB, 4 * MIB, 1), 0) == Ahead(12 * MIB, 20 * MIB)


def test_without_a_next_log_the_lead_ends_with_this_one() -> None:
    ranges = RangesInOrder(64 * MIB)
    found = []
    for at in range(LOG_BYTES - 6 * MIB, LOG_BYTES, MIB):
        found.append(ranges.took(replace(asked(at, at + MIB), following=None), 0))
    assert max(each.end for each in found if each) == LOG_BYTES
    assert not any(each.following_end for each in found if each)
    assert found[-1] is None


def test_two_readers_of_one_log_are_told_apart() -> None:
    ranges = RangesInOrder(64 * MIB)
    for at in (0, 10 * MIB):
        assert ranges.took(asked(at, at + MIB), 0) is None
    for at in (MIB, 11 * MIB):
        assert ranges.took(asked(at, at + MIB), 0) == Ahead(at + MIB, at + 2 * MIB)


def test_what_a_reader_has_read_itself_is_known() -> None:
    ranges = RangesInOrder(64 * MIB)
    ranges.took(asked(0, MIB), 0)
    assert ranges.read_before(asked(MIB - 100, 2 * MIB)) == MIB
    assert ranges.read_before(asked(2 * MIB, 3 * MIB)) == 0


def test_readers_share_the_bytes_and_with_too_little_for_each_there_are_none() -> None:
    ranges = RangesInOrder(4 * MIB)
    for number in range(0, 8, 2):
        ranges.took(asked(0, MIB, number), 0)
        ranges.took(asked(MIB, 2 * MIB, number), 0)
    found = [ranges.took(asked(2 * MIB, 3 * MIB, number), 0) for number in range(0, 8, 2)]
    assert found[-1] == Ahead(3 * MIB, 4 * MIB)
    ranges = RangesInOrder(READER_BYTES_MIN - 1)
    for at in range(5):
        assert ranges.took(asked(at * MIB, (at + 1) * MIB), 0) is None


def test_a_reader_that_paused_too_long_begins_anew_and_gives_its_share_back() -> None:
    ranges = RangesInOrder(8 * MIB)
    ranges.took(asked(0, MIB), 0)
    assert ranges.took(asked(MIB, 2 * MIB), 1)
    assert ranges.took(asked(2 * MIB, 3 * MIB), 2 + IDLE_S) is None
    assert ranges.took(asked(3 * MIB, 4 * MIB), 2 + IDLE_S)


def test_the_readers_known_at_once_are_bounded() -> None:
    ranges = RangesInOrder(64 * MIB)
    for number in range(READERS_MAX + 5):
        ranges.took(asked(0, MIB, 2 * number), 0)
    assert ranges.read_before(asked(MIB, 2 * MIB, 8)) == 0
    assert ranges.read_before(asked(MIB, 2 * MIB, 10)) == MIB


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 2 * MIB), st.integers(0, 200_000)), max_size=30
    ),
    st.integers(0, 16 * MIB),
    st.booleans(),
)
def test_nothing_is_fetched_twice_or_too_far_ahead(
    steps: list[tuple[int, int, int]], bytes_max: int, last: bool
) -> None:
    """Of readers of four logs, each range beginning a little before the end of the one before."""
    ranges = RangesInOrder(bytes_max)
    starts, ends, fetched = [-1] * 4, [0] * 4, [0] * 4
    for reader, size, back in steps:
        start = max(starts[reader] + 1, ends[reader] - back)
        end = min(start + size, LOG_BYTES)
        if not start <= ends[reader] < end:
            continue
        starts[reader], ends[reader] = start, end
        following = None if last else segment(100 + reader)
        ahead = ranges.took(AskedRange(segment(reader), start, end, LOG_BYTES, following), 0)
        if ahead is None:
            continue
        assert ahead.start >= min(max(end, fetched[reader]), LOG_BYTES)
        until = ahead.end + ahead.following_end
        assert ahead.start < until <= end + min(READER_BYTES_MAX, bytes_max)
        assert ahead.end <= LOG_BYTES
        assert ahead.end == LOG_BYTES or not ahead.following_end
        assert not (last and ahead.following_end)
        fetched[reader] = ahead.end
