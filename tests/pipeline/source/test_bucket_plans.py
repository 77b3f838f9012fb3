"""What a query, a restore and an export read of a bucket alone whose segments are not all there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, InputPartition, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafka_formats.errors import Conflict, NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.export.offset_ranges import Ranges
from pipeline.jobs import export
from pipeline.restore.ranges import Wanted, find_ranges
from pipeline.source import stream_reader
from pipeline.source.batch_plan import plan_batch
from pipeline.source.filters import NOTHING_PRUNED, Pruning, prune
from pipeline.source.options import Subscription, parse_options
from pipeline.source.plan import Task
from pipeline.source.stream_reader import StreamReader
from pipeline.source.task_partition import TaskPartition
from pipeline.source.tier_view import TierView
from rlm.data_plane.read_request import Isolation
from tests.pipeline.catalogue.test_manifest_catalogue import ORDERS, PREFIX, catalogue, put

UNCOMMITTED = Isolation.READ_UNCOMMITTED
OTHER_PARTITION = replace(ORDERS, partition=1)
OTHER_TOPIC = replace(ORDERS, topic="payments")


def plan(
    root: Path, options: Mapping[str, str], pruning: Pruning = NOTHING_PRUNED
) -> list[tuple[int, int, int]]:
    parsed = parse_options({"isolation": "read_uncommitted"} | dict(options))
    tasks: list[Task] = plan_batch(
        TierView(catalogue(root), parsed.read_settings()), parsed, pruning
    )
    parts = [part for task in tasks for part in task]
    return [
        (each.segment.partition.partition, each.first_offset, each.last_offset) for each in parts
    ]


def restored(root: Path, wanted: Wanted) -> list[int]:
    found = find_ranges(catalogue(root), {}, wanted, UNCOMMITTED, ("offset",))
    return [each.partition for each in found.slices]


def contradicting(root: Path) -> None:
    """Two copies of which a bucket does not tell where the later leader's records begin."""
    put(root, 1, 0, 99, epochs=((1, 0),), at_ms=1)
    put(root, 2, 50, 149, epochs=((3, 50),), at_ms=2)


def test_offsets_of_a_segment_in_doubt_are_lost_not_never_written(tmp_path: Path) -> None:
    contradicting(tmp_path)
    with pytest.raises(Conflict, match="orders-0: offsets 0 to 49 are in no tiered segment"):
        plan(tmp_path, {"subscribe": "orders"})
    lenient = {"subscribe": "orders", "failOnDataLoss": "false"}
    assert plan(tmp_path, lenient) == [(0, 50, 149)]
    behind = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 50}}'}
    assert plan(tmp_path, behind) == [(0, 50, 149)]
    with pytest.raises(Conflict, match="offsets 0 to 49"):
        restored(tmp_path, Wanted("orders"))


def export_plan(root: Path) -> export._Plan:
    @dataclass
    class NewTable:
        def exported(self, name: str) -> Ranges:
            del name
            return ()

    subscription = Subscription(("orders",))
    options = export.ExportOptions(to="/x", subscription=subscription, isolation=UNCOMMITTED)
    view = TierView(catalogue(root), parse_options({"subscribe": "orders"}).read_settings())
    view.settings = replace(view.settings, isolation=UNCOMMITTED)
    every = view.subscribed(subscription)
    return export._Plan.of(view, every, options, NewTable())  # type: ignore[arg-type]  # as much as is asked


def test_an_export_reports_the_offsets_of_a_segment_in_doubt(tmp_path: Path) -> None:
    contradicting(tmp_path)
    found = export_plan(tmp_path)
    assert [(each.first_offset, each.last_offset) for each in found.slices] == [(50, 149)]
    assert found.missing == {str(ORDERS): ((0, 49),)}


def test_an_export_reports_offsets_in_doubt_above_the_end(tmp_path: Path) -> None:
    doubtful_tail(tmp_path)
    found = export_plan(tmp_path)
    assert [(each.first_offset, each.last_offset) for each in found.slices] == [(200, 299)]
    assert found.missing == {str(ORDERS): ((100, 199), (300, 400))}


def doubtful_tail(root: Path) -> None:
    """The earlier leader's copy goes on above the later leader's, and which of its offsets the log
    kept is unknown.
    """
    put(root, 1, 100, 400, epochs=((5, 100),), at_ms=1)
    put(root, 2, 200, 299, epochs=((6, 200),), at_ms=2)


def test_a_stream_does_not_pass_what_only_segments_in_doubt_have_above_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubtful_tail(tmp_path)
    tier = catalogue(tmp_path)
    monkeypatch.setattr(stream_reader, "open_catalogue", lambda options: tier)
    stream = StreamReader(
        {"subscribe": "orders", "failOnDataLoss": "false", "isolation": "read_uncommitted"}
    )
    begin = stream.latestOffset()
    assert begin["orders"]["0"] == 300
    put(tmp_path, 3, 300, 399, epochs=((6, 300),), at_ms=3)
    put(tmp_path, 4, 400, 499, epochs=((6, 400),), at_ms=4)
    end = stream.latestOffset()
    read = [
        (part.first_offset, part.last_offset)
        for task in stream.partitions(begin, end)
        if isinstance(task, TaskPartition)
        for part in task.slices
    ]
    assert read == [(300, 399), (400, 499)]


def test_batches_to_an_end_of_long_ago_read_the_segments_that_are_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair copied one anew while the batches before were read."""
    put(tmp_path, 1, 0, 99)
    damaged = put(tmp_path, 2, 100, 199)
    tier = catalogue(tmp_path)
    monkeypatch.setattr(stream_reader, "open_catalogue", lambda options: tier)
    stream = StreamReader({"subscribe": "orders", "isolation": "read_uncommitted"})
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(begin := {"orders": {"0": 0}}, ReadAllAvailable())
    first = stream.partitions(begin, end)
    mended = put(tmp_path, 3, 100, 199, at_ms=3)
    for key in damaged.all():
        (tmp_path / key).unlink()

    again = stream.partitions(begin, end)

    def logs(tasks: list[InputPartition]) -> list[str]:
        parts = (part for one in tasks if isinstance(one, TaskPartition) for part in one.slices)
        return [each.segment.keys(PREFIX).log for each in parts]

    assert logs(first)[1:] == [damaged.log]
    assert logs(again)[1:] == [mended.log]


def test_a_batch_query_tells_of_what_only_segments_in_doubt_have_above_the_end(
    tmp_path: Path,
) -> None:
    doubtful_tail(tmp_path)
    with pytest.raises(Conflict, match="orders-0: offsets 300 to 400 can't be read"):
        plan(tmp_path, {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 200}}'})
    to_the_end = {"subscribe": "orders", "endingOffsets": '{"orders": {"0": 300}}'}
    from_200 = {"startingOffsets": '{"orders": {"0": 200}}'}
    assert plan(tmp_path, to_the_end | from_200) == [(0, 200, 299)]
    below = {"subscribe": "orders"} | from_200
    assert plan(tmp_path, below, prune([LessThan(("offset",), 250)])) == [(0, 200, 249)]
    lenient = {"subscribe": "orders", "failOnDataLoss": "false"}
    assert plan(tmp_path, lenient) == [(0, 200, 299)]


def unfinished(root: Path, partition: TopicIdPartition) -> None:
    """A first upload that did not end: its manifest would come last."""
    keys = put(root, 9, 0, 9, partition=partition)
    (root / keys.manifest).unlink()


@pytest.mark.parametrize("partition", [OTHER_PARTITION, OTHER_TOPIC])
@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders"},
        {"subscribePattern": ".*"},
        {"assign": '{"orders": [0]}'},
    ],
)
def test_a_folder_without_a_finished_segment_stops_no_query(
    tmp_path: Path, partition: TopicIdPartition, options: Mapping[str, str]
) -> None:
    put(tmp_path, 1, 0, 9)
    unfinished(tmp_path, partition)
    assert plan(tmp_path, options) == [(0, 0, 9)]
    assert restored(tmp_path, Wanted("orders")) == [0]


def test_what_is_named_and_has_no_finished_segment_is_told(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 9)
    unfinished(tmp_path, OTHER_PARTITION)
    unfinished(tmp_path, OTHER_TOPIC)
    assert plan(tmp_path, {"assign": '{"orders": [0, 1]}'}) == [(0, 0, 9)]
    assert plan(tmp_path, {"subscribe": "orders"}, prune([EqualTo(("partition",), 1)])) == []
    with pytest.raises(NotFound, match="no finished segment yet"):
        plan(tmp_path, {"subscribe": "orders,payments"})
    with pytest.raises(NotFound, match="no finished segment yet"):
        restored(tmp_path, Wanted("orders", partitions=(1,)))
