"""The rows and the report of one partition, from the columns that tasks hand over."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.jobs.rebuild import RebuildReport
from pipeline.rebuild.manifest_rows import _ARROW
from pipeline.rebuild.partition_group import RebuildPartitions
from rlmm.partition_state import Mode
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

ORDERS = TopicIdPartition("orders", Uuid(b"orders-topic-id!"), 0)


def row(number: int, start: int, end: int, *, is_ours: bool, epoch: int = 0) -> dict[str, object]:
    id_ = RemoteLogSegmentId(ORDERS, Uuid(number.to_bytes(16, "big")))
    started = SegmentState.COPY_SEGMENT_STARTED
    segment = RemoteLogSegmentMetadata(
        id_, start, end, 5, 1, number, ((epoch, start),), 100, None, started
    )
    return {
        "store": "main", "topic": "orders", "topic_id": str(ORDERS.topic_id), "partition": 0,
        "segment_id": str(id_.id), "start_offset": start, "end_offset": end, "log_bytes": 100,
        "event_ms": number, "is_ours": is_ours, "row": encode_segment_row(segment),
        "reason": None, "why": None,
    }  # fmt: skip


def told(rows: list[dict[str, object]], mode: Mode | None = None) -> dict[str, Any]:
    begins = {(str(ORDERS.topic_id), 0): 0}
    work = RebuildPartitions(begins, ("main",), frozenset(), frozenset(), False, mode)
    table = work.rows_of(pa.Table.from_pylist(rows, schema=_ARROW))
    (text,) = (each for each in table["told"].to_pylist() if each is not None)
    document: dict[str, Any] = json.loads(text)
    return document


def test_segments_of_two_managers_all_get_rows_that_nobody_expires() -> None:
    moved = [row(n + 1, n * 10, n * 10 + 9, is_ours=n >= 8) for n in range(10)]
    found = told(moved)
    assert found["left_out"] == {}
    rebuilt = found["rebuilt"]
    assert (rebuilt["segments"], rebuilt["log_start_offset"]) == (10, 0)
    assert (rebuilt["highest_copied"], rebuilt["lost_offsets"]) == (99, 0)
    assert (rebuilt["mode"], rebuilt["managers"]) == ("READ_ONLY", 2)


def test_a_segment_of_another_manager_without_a_row_does_not_stop_the_copies() -> None:
    """One that a later leader of ours wrote anew."""
    stale = row(1, 0, 9, is_ours=False)
    ours = [row(2, 0, 9, is_ours=True, epoch=3), row(3, 10, 19, is_ours=True, epoch=3)]
    found = told([stale, *ours])
    assert found["left_out"].keys() == {"diverged"}
    assert (found["rebuilt"]["mode"], found["rebuilt"]["managers"]) == ("SIDECAR", 1)


def test_the_report_for_people_names_partitions_of_two_managers_and_what_to_do() -> None:
    both = told([row(1, 0, 9, is_ours=False), row(2, 10, 19, is_ours=True)])["rebuilt"]
    ours = told([row(1, 0, 9, is_ours=True)])["rebuilt"]
    lines = list(RebuildReport(partitions=[both | {"partition": n} for n in range(25)]).lines())
    at = next(n for n, line in enumerate(lines) if "two managers" in line)
    assert "25 partitions" in lines[at]
    assert "strandline mode set" in lines[at + 1]
    assert lines[at + 2] == "  orders-0"
    assert lines[at + 22] == "  and 5 more"
    assert not [line for line in RebuildReport(partitions=[ours]).lines() if "two man" in line]


def test_the_mode_asked_for_is_that_of_partitions_of_ours_alone() -> None:
    ours = [row(n + 1, n * 10, n * 10 + 9, is_ours=True) for n in range(3)]
    assert told(ours)["rebuilt"]["mode"] == "SIDECAR"
    assert told(ours, Mode.READ_ONLY)["rebuilt"]["mode"] == "READ_ONLY"


def test_of_the_same_offsets_copied_by_two_managers_the_later_copy_is_served() -> None:
    twice = [row(1, 0, 9, is_ours=False), row(2, 0, 9, is_ours=True), row(3, 10, 19, is_ours=True)]
    found = told(twice)
    assert (found["rebuilt"]["lost_offsets"], found["rebuilt"]["log_start_offset"]) == (0, 0)
    assert found["rebuilt"]["mode"] == "READ_ONLY"
