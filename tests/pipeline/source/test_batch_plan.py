"""What a batch query reads of a tier, and what it says of what it can't."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from kafka_formats.errors import Conflict, InvalidRequest, NotFound
from pipeline.read.segment_slice import SegmentSlice
from pipeline.source import tier_view
from pipeline.source.batch_plan import plan_batch
from pipeline.source.filters import NOTHING_PRUNED, Pruning, prune
from pipeline.source.options import parse_options
from pipeline.source.plan import Task
from pipeline.source.tier_view import TierView
from tests.pipeline.source.tiered import MadeUpCatalogue, partition, segment

ORDERS_0, ORDERS_1 = partition("orders", 0), partition("orders", 1)
PAYMENTS = partition("payments", 0, 2)


def catalogue() -> MadeUpCatalogue:
    return MadeUpCatalogue(
        {
            ORDERS_0: [segment(10, 19), segment(20, 29), segment(30, 39)],
            ORDERS_1: [segment(0, 9, of=ORDERS_1), segment(20, 29, of=ORDERS_1)],
            PAYMENTS: [
                segment(0, 4, of=PAYMENTS, max_timestamp_ms=1_000),
                segment(5, 9, of=PAYMENTS, max_timestamp_ms=2_000),
            ],
        }
    )


def plan(options: Mapping[str, str], pruning: Pruning = NOTHING_PRUNED) -> list[Task]:
    parsed = parse_options({"isolation": "read_uncommitted"} | dict(options))
    return plan_batch(TierView(catalogue(), parsed.read_settings()), parsed, pruning)


def spans(tasks: list[Task]) -> list[tuple[str, int, int]]:
    def span(part: SegmentSlice) -> tuple[str, int, int]:
        of = part.segment.partition
        return f"{of.topic}-{of.partition}", part.first_offset, part.last_offset

    return [span(part) for task in tasks for part in task]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("subscribe", "payments", {"payments-0"}),
        ("subscribe", "payments,orders", {"orders-0", "orders-1", "payments-0"}),
        ("subscribePattern", "pay.*", {"payments-0"}),
        ("subscribePattern", "pay", set()),
        ("assign", '{"orders": [1], "payments": [0]}', {"orders-1", "payments-0"}),
    ],
)
def test_topics_are_chosen_by_name_by_pattern_or_one_by_one(
    option: str, value: str, expected: set[str]
) -> None:
    tasks = plan({option: value, "failOnDataLoss": "false"})
    assert {name for name, _, _ in spans(tasks)} == expected


def test_what_is_not_tiered_is_named() -> None:
    with pytest.raises(NotFound, match="parcels"):
        plan({"subscribe": "orders,parcels"})
    with pytest.raises(NotFound, match="parcels"):
        plan({"assign": '{"orders": [0], "parcels": [0]}'})


@pytest.mark.parametrize(
    "query",
    [
        {"assign": '{"orders": [0, 7]}'},
        {"assign": '{"orders": [0, 7]}', "startingOffsets": '{"orders": {"0": 10, "7": 5}}'},
        {"assign": '{"orders": [0, 7]}', "endingOffsets": '{"orders": {"0": 40, "7": 0}}'},
        {"assign": '{"orders": [0, 7]}', "startingOffsets": '{"orders": {"0": 10}}'},
        {
            "subscribe": "orders",
            "startingOffsets": '{"orders": {"0": 10, "1": 30, "7": -2}}',
        },
    ],
)
def test_a_named_partition_of_which_nothing_is_tiered_is_empty(query: dict[str, str]) -> None:
    assert spans(plan(query)) == [
        ("orders-0", 10, 19),
        ("orders-0", 20, 29),
        ("orders-0", 30, 39),
    ]


def test_offsets_name_no_partition_that_is_not_of_the_query() -> None:
    for offsets in ('{"orders": {"0": 1, "8": 1}}', '{"orders": {"0": 1}, "payments": {"0": 1}}'):
        with pytest.raises(InvalidRequest, match="not tiered or not subscribed"):
            plan({"assign": '{"orders": [0, 7]}', "startingOffsets": offsets})
    with pytest.raises(InvalidRequest, match="missing: orders-1"):
        plan({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1, "7": 1}}'})


def test_offsets_cut_segments_and_begin_and_end_with_the_tier() -> None:
    tasks = plan(
        {
            "assign": '{"orders": [0]}',
            "startingOffsets": '{"orders": {"0": 15}}',
            "endingOffsets": '{"orders": {"0": 32}}',
        }
    )
    assert spans(tasks) == [("orders-0", 15, 19), ("orders-0", 20, 29), ("orders-0", 30, 31)]
    assert spans(plan({"subscribe": "payments"})) == [("payments-0", 0, 4), ("payments-0", 5, 9)]


def test_a_hole_fails_the_query_or_is_passed_over() -> None:
    asked = {"assign": '{"orders": [1]}'}
    with pytest.raises(Conflict, match="orders-1: offsets 10 to 19 are in no") as lost:
        plan(asked)
    assert lost.value.reason == "DATA_LOSS"
    assert "failOnDataLoss" in str(lost.value)
    tasks = plan(asked | {"failOnDataLoss": "false"})
    assert spans(tasks) == [("orders-1", 0, 9), ("orders-1", 20, 29)]


def test_offsets_below_the_first_readable_fail_the_query_or_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 4}}'}
    with pytest.raises(Conflict, match="orders-0: offsets 4 to 9 are below"):
        plan(asked)
    assert spans(plan(asked | {"failOnDataLoss": "false"}))[0] == ("orders-0", 10, 19)
    assert "offsets 4 to 9" in caplog.text


def test_filters_leave_out_partitions_segments_and_offsets() -> None:
    everything = {"subscribePattern": ".*"}
    pruning = prune(
        [
            EqualTo(("topic",), "orders"),
            EqualTo(("partition",), 0),
            GreaterThanOrEqual(("offset",), 25),
            LessThan(("offset",), 31),
        ]
    )
    # The hole of orders-1 is nobody's loss who does not want it.
    assert spans(plan(everything, pruning)) == [("orders-0", 25, 29), ("orders-0", 30, 30)]
    assert plan(everything, prune([EqualTo(("topic",), "parcels")])) == []


def test_specific_offsets_must_fit_even_what_filters_leave_out() -> None:
    with pytest.raises(InvalidRequest, match=r"startingOffsets: .*missing: orders-1"):
        plan(
            {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 10}}'},
            prune([EqualTo(("partition",), 0)]),
        )


def test_tasks_are_as_many_and_as_small_as_asked_for() -> None:
    tasks = plan({"subscribe": "payments", "minPartitions": "4"})
    assert len(tasks) == 4
    tasks = plan({"subscribe": "payments", "maxRecordsPerPartition": "3"})
    assert spans(tasks) == [
        ("payments-0", 0, 2), ("payments-0", 3, 4), ("payments-0", 5, 7), ("payments-0", 8, 9),
    ]  # fmt: skip


def test_a_transaction_open_since_below_the_first_offset_leaves_nothing_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tier_view, "stable_end", lambda *_: 5)  # its head went with the log start
    committed = {"assign": '{"orders": [0]}', "isolation": "read_committed"}
    assert plan(committed) == []
    with pytest.raises(Conflict, match="after the end of readable offsets, 10"):
        plan(committed | {"startingOffsets": '{"orders": {"0": 12}}'})
