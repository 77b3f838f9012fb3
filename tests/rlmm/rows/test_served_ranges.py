"""All ranges at once say what look-ups say one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.leader_epoch_checkpoint import Epochs, epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.records.segment_records import encode_segment_record
from rlmm.rows import keys, queries, values
from rlmm.rows.coverage import cover, covered_ranges, uncover
from rlmm.rows.queries import MetPartition, newest_incarnation
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.rows.served_ranges import ServedRange, served_ranges
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.planner_facts import state
from tests.rlmm.rows.test_coverage import finished
from tests.rlmm.state_world import ORDERS, epochs, segment_uuid

END = 60


def rows_of(lineage: Epochs, segments: list[RemoteLogSegmentMetadata]) -> OverlayRows:
    rows = OverlayRows(MemoryRows())
    rows.put(keys.lineage_key(ORDERS), values.encode_lineage(lineage))
    for segment in segments:
        rows.put(keys.segment_key(segment.segment_id.id), encode_segment_record(segment))
        cover(rows, segment)
    return rows


def ranges(
    lineage: Epochs, segments: list[RemoteLogSegmentMetadata], first: int = 0, last: int = END
) -> list[ServedRange]:
    rows = rows_of(lineage, segments)
    return list(
        served_ranges(lineage, lambda *asked: covered_ranges(rows, ORDERS, *asked), first, last)
    )


@st.composite
def lineages(draw: st.DrawFn) -> Epochs:
    starts = sorted(draw(st.sets(st.integers(0, END), min_size=1, max_size=4)))
    numbers = sorted(draw(st.sets(st.integers(0, 6), min_size=len(starts), max_size=len(starts))))
    return epochs(*zip(numbers, starts, strict=True))


@st.composite
def histories(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    """Segments of any epochs, in the lineage or not."""
    segments = []
    for number in range(1, draw(st.integers(0, 8)) + 1):
        start = draw(st.integers(0, END))
        end = start + draw(st.integers(0, 20))
        borders = sorted(draw(st.sets(st.integers(start, end), max_size=2)) | {start})
        count = len(borders)
        numbers = sorted(draw(st.sets(st.integers(0, 6), min_size=count, max_size=count)))
        segments.append(finished(number, start, end, *zip(numbers, borders, strict=True)))
    return segments


@settings(max_examples=150, deadline=None)
@given(lineages(), histories())
def test_each_offset_is_served_as_its_look_up_says(
    lineage: Epochs, segments: list[RemoteLogSegmentMetadata]
) -> None:
    rows = rows_of(lineage, segments)
    expected = {}
    for offset in range(END + 1):
        epoch = epoch_for_offset(lineage, offset)
        found = queries.segment_for_offset(
            rows, ORDERS, lineage[0].epoch if epoch is None else epoch, offset
        )
        if found is not None:
            expected[offset] = found.metadata.segment_id.id
    served = ranges(lineage, segments)
    assert [offset for each in served for offset in _offsets(each)] == sorted(expected)
    assert {offset: each.segment for each in served for offset in _offsets(each)} == expected


def _offsets(served: ServedRange) -> range:
    return range(served.first_offset, served.last_offset + 1)


def test_a_segment_of_two_epochs_is_one_range() -> None:
    segment = finished(1, 0, 20, (0, 0), (3, 10))
    lineage = epochs((0, 0), (3, 10), (4, 16))
    assert ranges(lineage, [segment]) == [(0, 15, segment_uuid(1))]
    assert ranges(lineage, [segment], 4, 12) == [(4, 12, segment_uuid(1))]


def test_what_serves_from_a_hole_on_begins_behind_it() -> None:
    segments = [finished(1, 0, 9), finished(2, 30, 39)]
    assert ranges(epochs((0, 0), (3, 50)), segments, 10) == [(30, 39, segment_uuid(2))]
    assert ranges(epochs((0, 0)), segments, 40) == []


def test_what_serves_readers_ends_at_the_log_start_and_the_highest_copied() -> None:
    segments = [finished(number, number * 10, number * 10 + 9) for number in range(4)]
    lineage = epochs((0, 0))
    rows = rows_of(lineage, segments)
    known = replace(state(lineage=lineage, log_start=12, highest=(34, 0)), partition=ORDERS)
    served = [each for each, _ in queries.served_segments(rows, known, 0, 10**9)]
    assert [each[:2] for each in served] == [(12, 19), (20, 29), (30, 34)]
    assert list(queries.served_segments(rows, known, 35, 10**9)) == []
    nothing = replace(known, highest_copied=None)
    assert list(queries.served_segments(rows, nothing, 0, 10**9)) == []


class SnapshotScans:
    """A scan has the rows as they were when it began, as one of RocksDB."""

    def __init__(self, rows: OverlayRows) -> None:
        self._rows = rows

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._rows.scan(start, end, reverse=reverse)))


def test_what_replaced_a_segment_while_ranges_are_read_is_named_for_it() -> None:
    old = [finished(number, number * 10, number * 10 + 9) for number in range(4)]
    lineage = epochs((0, 0))
    rows = rows_of(lineage, old)
    known = replace(state(lineage=lineage, log_start=0, highest=(39, 0)), partition=ORDERS)
    served = queries.served_segments(SnapshotScans(rows), known, 0, 10**9)
    assert next(served)[0].segment == segment_uuid(0)
    marked = replace(old[1], state=SegmentState.DELETE_SEGMENT_STARTED)
    for gone, by in ((old[1], finished(11, 10, 19)), (old[2], finished(12, 20, 29))):
        rows.put(keys.segment_key(by.segment_id.id), encode_segment_record(by))
        cover(rows, by)
        uncover(rows, gone)
    rows.put(keys.segment_key(old[1].segment_id.id), encode_segment_record(marked))
    rows.delete(keys.segment_key(old[2].segment_id.id))
    assert [(*each[:2], row.segment_id.id) for each, row in served] == [
        (10, 19, segment_uuid(11)), (20, 29, segment_uuid(12)), (30, 39, segment_uuid(3)),
    ]  # fmt: skip


def test_the_newest_incarnation_is_the_one_met_last_with_all_its_partitions() -> None:
    def met(topic_id: int, partition: int, at: int) -> MetPartition:
        return MetPartition(TopicIdPartition("orders", segment_uuid(topic_id), partition), at)

    known = [met(9, 0, 5), met(1, 0, 70), met(9, 1, 90), met(1, 1, 60), met(9, 2, 6)]
    assert [each.partition for each in newest_incarnation(known)] == [0, 1]
    assert {each.topic_id for each in newest_incarnation(known)} == {segment_uuid(1)}
    assert newest_incarnation([]) == []
