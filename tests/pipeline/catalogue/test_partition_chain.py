"""Which segments readers get where leaders changed, copied twice, or lost a tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue import partition_chain as partition_chain_module
from pipeline.catalogue.partition_chain import (
    FoundSegment,
    PartitionChain,
    newest_topic,
    partition_chain,
)
from pipeline.catalogue.tiered_segment import within
from rlm.format.custom_metadata import CustomMetadata
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

PARTITION = TopicIdPartition("orders", Uuid(b"orders-topic-id!"), 0)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def found(
    number: int, start: int, end: int, *epochs: tuple[int, int], at_ms: int | None = None
) -> FoundSegment:
    custom = CustomMetadata("main", 1, 2, 3, 4, 5, number)
    row = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid(number)),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=end,
        event_timestamp_ms=number if at_ms is None else at_ms,
        leader_epochs=epochs or ((0, start),),
        size_bytes=1_000,
        custom_metadata=custom.encode(),
        state=SegmentState.COPY_SEGMENT_STARTED,
    )
    return FoundSegment(row, "main", custom)


def served(chain: PartitionChain) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, int.from_bytes(each.segment_id.id, "big"))
        for each in chain.segments
    ]


def test_segments_follow_each_other_with_what_their_manifests_say() -> None:
    chain = partition_chain([found(2, 10, 19), found(1, 0, 9)])
    assert served(chain) == [(0, 9, 1), (10, 19, 2)]
    objects = chain.segments[1].objects
    assert objects is not None
    assert objects.manifest_crc32c == 2


def test_of_two_copies_the_further_reaching_one_is_read_then_the_later() -> None:
    assert served(partition_chain([found(1, 0, 9), found(2, 0, 14)])) == [(0, 14, 2)]
    assert served(partition_chain([found(1, 0, 9), found(2, 0, 9)])) == [(0, 9, 2)]
    assert served(partition_chain([found(1, 0, 9), found(2, 0, 9, at_ms=0)])) == [(0, 9, 1)]
    assert served(partition_chain([found(1, 0, 9), found(2, 5, 14)])) == [(0, 4, 1), (5, 14, 2)]


def test_the_tail_that_a_later_leader_cut_off_is_not_read() -> None:
    chain = partition_chain([found(1, 0, 29, (0, 0)), found(2, 10, 24, (0, 10), (3, 20))])
    assert served(chain)[-1] == (20, 24, 2)
    assert all(last < 20 for _, last, number in served(chain) if number == 1)


def test_a_hole_stays_a_hole() -> None:
    chain = partition_chain([found(1, 0, 9), found(3, 20, 29)])
    assert served(chain) == [(0, 9, 1), (20, 29, 3)]


def test_a_range_of_a_chain_is_cut_out_of_it() -> None:
    segments = partition_chain([found(1, 0, 9), found(3, 20, 29), found(4, 30, 39)]).segments
    assert [each[:2] for each in _ranges(within(segments, 5, 30))] == [(5, 9), (20, 29), (30, 30)]
    assert within(segments, 10, 19) == []
    assert within(segments, 40, 50) == []
    assert within(segments, 0, 100) == list(segments)


def _ranges(segments: object) -> list[tuple[int, int]]:
    assert isinstance(segments, list)
    return [(each.first_offset, each.last_offset) for each in segments]


def test_the_topic_that_copied_last_is_the_newest() -> None:
    assert newest_topic({uuid(9): 5, uuid(1): 7, uuid(5): 6}) == uuid(1)


@dataclass
class Replicated:
    """A log by the epoch of each offset, and what its leaders copied of it."""

    log: list[int] = field(default_factory=list)
    epoch: int = 0
    next_offset: int = 0
    copies: list[tuple[FoundSegment, dict[int, int]]] = field(default_factory=list)

    def append(self, count: int) -> None:
        self.log += [self.epoch] * count

    def elect(self, lost: int) -> None:
        """A new leader, without the last records."""
        self.epoch += 1
        if lost:
            del self.log[-lost:]
        self.next_offset = min(self.next_offset, len(self.log))

    def copy(self, overlap: int, count: int) -> None:
        """A segment that holds the next offset."""
        start = max(0, self.next_offset - overlap)
        end = min(len(self.log), self.next_offset + count) - 1
        if end < self.next_offset:
            return
        epochs = [
            (self.log[at], at)
            for at in range(start, end + 1)
            if at == start or self.log[at] != self.log[at - 1]
        ]
        segment = found(len(self.copies) + 1, start, end, *epochs)
        content = {at: self.log[at] for at in range(start, end + 1)}
        self.copies.append((segment, content))
        self.next_offset = end + 1


@st.composite
def neighbours(draw: st.DrawFn) -> list[FoundSegment]:
    """Segments one behind the other, and now and then nearly so."""
    segments = []
    next_offset, epoch = draw(st.integers(0, 3)), draw(st.integers(0, 1))
    for number in range(draw(st.integers(1, 6))):
        start = max(0, next_offset + draw(st.sampled_from((0, 0, 0, 0, 1, 4, -1, -3))))
        end = start + draw(st.integers(0, 5))
        epoch = max(0, epoch + draw(st.sampled_from((0, 0, 0, 1, 2, -1))))
        epochs = [(epoch, start + draw(st.sampled_from((0, 0, 0, 0, 0, 1, -1))))]
        for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
            epoch += draw(st.sampled_from((1, 1, 1, 2)))
            epochs.append((epoch, epochs[-1][1] + draw(st.integers(1, 3))))
        at_ms = draw(st.integers(0, 3))
        segments.append(found(number + 1, start, end, *epochs, at_ms=at_ms))
        next_offset = end + 1
    if draw(st.integers(0, 9)) == 0:
        segments.append(segments[0])
    return draw(st.permutations(segments))


def decided(segments: Sequence[FoundSegment]) -> PartitionChain:
    """By the general rules, whatever follows whatever."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_chain_module, "_follow_one_another", lambda _: False)
        return partition_chain(segments)


@settings(max_examples=600, deadline=None)
@given(neighbours())
def test_segments_that_follow_one_another_need_no_decision(segments: list[FoundSegment]) -> None:
    assert partition_chain(segments) == decided(segments)


@pytest.mark.parametrize(
    ("segments", "follow"),
    [
        ([(0, 9, (0, 0)), (10, 19, (0, 10)), (30, 39, (0, 30), (2, 35))], True),
        ([(0, 9, (0, 0)), (9, 19, (0, 9))], False),
        ([(0, 9, (1, 0)), (10, 19, (0, 10))], False),
        ([(0, 9, (1, 3))], False),
        ([(0, 9, (1, 0), (2, 10))], False),
        ([(0, OFFSET_MAX + 1, (1, 0))], False),
    ],
)  # fmt: skip
def test_a_partition_without_doubts_is_known_as_such(
    segments: list[tuple[int, int, *tuple[tuple[int, int], ...]]], follow: bool
) -> None:
    in_order = [found(number, *each) for number, each in enumerate(segments, 1)]
    assert partition_chain_module._follow_one_another(in_order) == follow
    assert partition_chain(in_order) == decided(in_order)


STEPS = st.lists(
    st.tuples(st.sampled_from("aace"), st.integers(0, 6), st.integers(1, 12)), max_size=25
)


def history(steps: list[tuple[str, int, int]], *, may_lose: bool) -> Replicated:
    world = Replicated()
    for what, small, large in steps:
        if what == "a":
            world.append(large)
        elif what == "c":
            world.copy(small, large)
        else:
            world.elect(small if may_lose else 0)
    world.append(3)
    world.copy(2, len(world.log))  # what the last leader knows reaches the bucket
    return world


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_without_a_lost_record_every_copied_offset_is_read_once(
    steps: list[tuple[str, int, int]],
) -> None:
    world = history(steps, may_lose=False)
    chain = partition_chain(segment for segment, _ in world.copies)
    assert not chain.in_doubt
    offsets = [at for first, last, _ in served(chain) for at in range(first, last + 1)]
    assert offsets == list(range(len(world.log)))


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_whatever_leaders_lost_no_record_is_read_that_the_log_did_not_keep(
    steps: list[tuple[str, int, int]],
) -> None:
    world = history(steps, may_lose=True)
    every = [segment for segment, _ in world.copies]
    assert partition_chain(every) == decided(every)
    contents = {segment.row.segment_id.id: content for segment, content in world.copies}
    chain = partition_chain(segment for segment, _ in world.copies)
    read = {}
    for each in chain.segments:
        for at in range(each.first_offset, each.last_offset + 1):
            assert at not in read
            read[at] = contents[each.segment_id.id][at]
    assert read == {at: world.log[at] for at in read}
    right = {
        at
        for id_, content in contents.items()
        if id_ not in chain.in_doubt
        for at, epoch in content.items()
        if at < len(world.log) and world.log[at] == epoch
    }
    assert right <= read.keys()
