"""The decisions of an erasure: a guard a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import parse_segment_key, segment_keys
from rlm.reconcile.collection_plan import NEVER_KNOWN, Known, ObjectClass
from rlm.reconcile.erasure_plan import Decided, Scope, decide, why_not_ordered
from rlmm.partition_state import Mode
from rlmm.segment import PartitionDeleteState, RemoteLogSegmentMetadata, SegmentState
from tests.rlm.planner_facts import PARTITION, segment_row, state, uuid

PREFIX = "tier/"
DELETED = Known(deleted=True)
TOPIC = Scope(PARTITION.topic)
LATE_MS = 1


def row(start: int, end: int, of: SegmentState) -> RemoteLogSegmentMetadata:
    return replace(segment_row(1, start, end), state=of)


def decided(scope: Scope, segment: RemoteLogSegmentMetadata, known: Known) -> Decided | None:
    key = segment_keys(PREFIX, segment.segment_id, segment.start_offset).log
    return decide(scope, key, parse_segment_key(PREFIX, key), known, prefix=PREFIX)


@pytest.mark.parametrize("of", list(SegmentState))
def test_no_key_of_a_segment_with_a_row_goes_whatever_its_state_and_time(of: SegmentState) -> None:
    segment = row(0, 9, of)
    for known in (Known(segment, LATE_MS), Known(segment, 0), Known(segment, 0, deleted=True)):
        found = decided(TOPIC, segment, known)
        assert found is not None
        assert not found.takes
        assert found.will, "it goes with its segment"


def test_only_what_the_log_says_was_deleted_goes() -> None:
    segment = row(0, 9, SegmentState.COPY_SEGMENT_FINISHED)
    assert decided(TOPIC, segment, DELETED) == Decided(ObjectClass.ORPHAN, True, False)
    assert decided(TOPIC, segment, NEVER_KNOWN) == Decided(ObjectClass.FOREIGN, False, False)
    other = replace(segment, start_offset=5)  # our id under a name that we never wrote
    key = segment_keys(PREFIX, segment.segment_id, 5).log
    parsed = parse_segment_key(PREFIX, key)
    assert decide(TOPIC, key, parsed, Known(segment), prefix=PREFIX) == Decided(
        ObjectClass.FOREIGN, False, False
    )
    assert decided(TOPIC, other, Known(other)) == Decided(ObjectClass.LIVE, False, True)


def test_nothing_outside_of_the_scope_is_even_counted() -> None:
    segment = row(10, 19, SegmentState.COPY_SEGMENT_FINISHED)
    tip = segment.segment_id.partition
    for scope in (
        Scope(tip.topic, tip.topic_id, tip.partition, 10),
        Scope(tip.topic, tip.topic_id, tip.partition + 1, 20),
        Scope(tip.topic, uuid(99)),
        Scope(f"{tip.topic}-"),
        Scope(tip.topic[:-1]),
    ):
        assert decided(scope, segment, DELETED) is None, scope
    for key in (f"{PREFIX}_strandline/cluster.json", f"{PREFIX}note", "x"):
        parsed = parse_segment_key(PREFIX, key)
        assert decide(TOPIC, key, parsed, DELETED, prefix=PREFIX) is None


def test_the_segment_that_the_offset_lies_in_stays() -> None:
    scope = Scope(PARTITION.topic, PARTITION.topic_id, PARTITION.partition, 15)
    across = row(10, 19, SegmentState.COPY_SEGMENT_FINISHED)
    assert (scope.takes(across), scope.spans(across)) == (False, True)
    found = decided(scope, across, Known(across))
    assert found == Decided(ObjectClass.LIVE, False, False)
    last = row(5, 14, SegmentState.COPY_SEGMENT_FINISHED)
    assert (scope.takes(last), scope.spans(last)) == (True, False)
    assert not scope.spans(row(15, 20, SegmentState.COPY_SEGMENT_FINISHED))


def test_nothing_goes_before_it_was_ordered() -> None:
    below = Scope(PARTITION.topic, PARTITION.topic_id, PARTITION.partition, 15)
    assert why_not_ordered(TOPIC, []) is None
    assert "is not being deleted" in (why_not_ordered(TOPIC, [state()]) or "")
    for of in PartitionDeleteState:
        going = state(delete_state=of)
        assert why_not_ordered(TOPIC, [going]) is None
        assert "is not being deleted" in (why_not_ordered(TOPIC, [going, state()]) or "")
    assert why_not_ordered(below, [state(log_start=15)]) is None
    assert "the log start of" in (why_not_ordered(below, [state(log_start=14)]) or "")
    delegated = state(log_start=15, mode=Mode.DELEGATED)
    assert "kafka-delete-records" in (why_not_ordered(below, [delegated]) or "")


def test_a_list_holds_the_whole_scope() -> None:
    tip = TopicIdPartition("orders", uuid(1), 3)
    keys = segment_keys(
        PREFIX, replace(row(0, 9, SegmentState.COPY_SEGMENT_FINISHED).segment_id, partition=tip), 0
    )
    for scope in (Scope("orders"), Scope("orders", uuid(1)), Scope("orders", uuid(1), 3, 5)):
        assert keys.log.startswith(scope.start_of_keys(PREFIX))
    assert Scope("orders", uuid(1), 3).start_of_keys(PREFIX).endswith("/3/")
    assert str(Scope("orders", None, 3, 5)) == "orders-3 below offset 5"
    assert str(Scope("orders")) == "orders"
