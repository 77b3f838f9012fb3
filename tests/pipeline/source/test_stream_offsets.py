"""What a checkpoint holds, how a stream goes on from it, and how far a batch goes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.tiered_segment import PartitionBounds
from pipeline.source.stream_offsets import (
    Position,
    count,
    created_anew,
    limited,
    parse,
    starts,
    to_json,
)
from tests.pipeline.source.tiered import partition, uuid

P0, P1 = partition(number=0), partition(number=1)


def test_a_checkpoint_has_kafkas_shape_and_the_ids_of_topics_in_one_order() -> None:
    offsets = {partition(number=10): 7, partition("a", 0, 2): 1, partition(number=9): 5}
    found = to_json(offsets)
    assert json.dumps(found) == (
        f'{{"a": {{"topicId": "{uuid(2)}", "0": 1}}, '
        f'"orders": {{"topicId": "{uuid(1)}", "9": 5, "10": 7}}}}'
    )
    assert parse(found) == {
        ("a", 0): Position(uuid(2), 1),
        ("orders", 9): Position(uuid(1), 5),
        ("orders", 10): Position(uuid(1), 7),
    }


def test_a_checkpoint_of_kafkas_own_source_is_gone_on_from() -> None:
    bounds = {P0: PartitionBounds(0, 100)}
    assert starts(parse({"orders": {"0": 23}}), bounds) == {P0: 23}


@pytest.mark.parametrize(
    "checkpoint",
    [[], {"orders": 5}, {"orders": {"0": "5"}}, {"orders": {"x": 5}}, {"orders": {"0": -1}},
     {"orders": {"topicId": "short", "0": 5}}, {"orders": {"topicId": 5, "0": 5}}, None,
     {"orders": {"0": True}}],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(checkpoint: object) -> None:
    with pytest.raises(InvalidRequest, match="checkpointLocation"):
        parse(checkpoint)


def test_new_partitions_begin_at_their_start_and_ones_made_anew_are_told() -> None:
    checkpoint = {
        ("orders", 0): Position(uuid(1), 23),
        ("orders", 1): Position(uuid(77), 40),
        ("gone", 3): Position(uuid(9), 8),
    }
    bounds = {
        P0: PartitionBounds(10, 100),
        P1: PartitionBounds(5, 50),
        partition(number=2): PartitionBounds(7, 9),
    }
    assert starts(checkpoint, bounds) == {P0: 23, P1: 5, partition(number=2): 7}
    there = {(each.topic, each.partition): Position(each.topic_id, 0) for each in bounds}
    (anew,) = created_anew(checkpoint, there)
    assert "orders-1: the topic was deleted and created anew" in anew


behind = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 90)))


@given(behind, st.integers(1, 200))
def test_a_limit_shares_out_and_always_gets_to_the_end(
    partitions: dict[int, tuple[int, int]], limit: int
) -> None:
    start = {partition(number=one): at for one, (at, _) in partitions.items()}
    latest = {partition(number=one): end for one, (_, end) in partitions.items()}
    at = dict(start)
    for _ in range(1_000):
        ends = limited(at, latest, limit)
        if ends == at:
            break
        taken = count(at, ends)
        assert all(at[one] <= end <= max(latest[one], at[one]) for one, end in ends.items())
        assert 0 < taken <= limit + len(partitions)
        at = ends
    assert at == {one: max(end, start[one]) for one, end in latest.items()}
