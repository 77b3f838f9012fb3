"""What a switch imported from Kafka's own metadata topic, against the bucket of the
RemoteStorageManager that the brokers keep.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.catalogue.node_address import NodeAddress
from pipeline.jobs.reconcile import ReconcileReport
from pipeline.reconcile import known_rows
from rlm.format.manifest import parse_manifest
from rlmm.rows.imported import as_imported
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.pipeline.jobs.test_reconcile import PARTITION, put, reconcile, segment, snapshot
from tests.pipeline.read.aiven_bucket import SMALL

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
SINCE = 7
FOREIGN = b"\xff\xfeof another one"


def remote_size(size_bytes: int) -> bytes:
    """The field REMOTE_SIZE as Aiven's plug-in writes it."""
    value, varlong = size_bytes << 1, bytearray()
    while value > 0x7F:
        varlong.append(value & 0x7F | 0x80)
        value >>= 7
    varlong.append(value)
    return bytes([1, 0, len(varlong), *varlong])


def rows_of(bucket: Path) -> list[RemoteLogSegmentMetadata]:
    """Rows as a switch imports them, of the bucket's manifests."""
    rows = []
    for path in sorted(bucket.rglob("*.rsm-manifest")):
        found = parse_manifest(path.read_bytes(), source=path.name)
        row = RemoteLogSegmentMetadata(
            found.segment_id, found.start_offset, found.end_offset, 1, found.max_timestamp_ms, 5,
            found.leader_epochs, found.log_bytes, None, SegmentState.COPY_SEGMENT_FINISHED,
        )  # fmt: skip
        rows.append(as_imported(row, SINCE))
    return rows


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Two segments of Aiven's plug-in."""
    for name in ("comp", "enc"):
        shutil.copytree(SMALL / name, tmp_path / "tier", dirs_exist_ok=True)
    return tmp_path / "tier"


def compared(
    spark: SparkSession, tier: Path, rows: Sequence[RemoteLogSegmentMetadata]
) -> ReconcileReport:
    buried = segment(99, SegmentState.COPY_SEGMENT_FINISHED).segment_id.id
    folder = tier.parent / "metadata"
    folder.mkdir()
    return reconcile(spark, tier, snapshot=snapshot(folder, list(rows), buried))


def counts(report: ReconcileReport) -> tuple[dict[str, int], dict[str, int]]:
    objects = {name: found.count for name, found in report.objects.items() if found.count}
    segments = {name: found.count for name, found in report.segments.items() if found.count}
    return objects, segments


def test_imported_segments_of_aivens_plug_in_are_live_and_whole(
    spark: SparkSession, tier: Path
) -> None:
    first, second = rows_of(tier)
    whole = sum(path.stat().st_size for path in tier.rglob(f"*{second.segment_id.id}.*"))
    rows = [first, replace(second, custom_metadata=remote_size(whole))]
    report = compared(spark, tier, rows)
    assert counts(report) == ({"live": 6}, {})
    assert (report.rows, report.uncompared, report.ok) == (2, 0, True)


def test_an_object_that_is_gone_or_cut_is_told(spark: SparkSession, tier: Path) -> None:
    first, second = rows_of(tier)
    next(tier.rglob(f"*{first.segment_id.id}.indexes")).unlink()
    second = replace(second, custom_metadata=remote_size(17))
    report = compared(spark, tier, [first, second])
    objects, segments = counts(report)
    assert (objects, segments) == ({"live": 5}, {"missing": 2})
    told = "\n".join(report.segments["missing"].examples)
    assert f"{first.segment_id.id}: " in told
    assert ".indexes is gone" in told
    assert "instead of 17" in told
    assert not report.ok


def test_a_segment_without_any_object_is_told_with_the_reasons_that_there_may_be(
    spark: SparkSession, tier: Path
) -> None:
    """Kafka's LocalTieredStorage writes no custom metadata either."""
    first, second = rows_of(tier)
    for path in tier.rglob(f"*{first.segment_id.id}*"):
        path.unlink()
    foreign = replace(
        segment(1, SegmentState.COPY_SEGMENT_FINISHED), custom_metadata=FOREIGN
    )  # nothing tells where its objects are
    report = compared(spark, tier, [first, second, foreign])
    assert counts(report) == ({"live": 3}, {"unfound": 1})
    assert (report.uncompared, report.ok) == (1, False)
    told = "\n".join(report.lines())
    assert "LocalTieredStorage" in told
    assert str(first.segment_id.id) in told


def test_an_imported_row_of_ours_and_one_being_deleted_are_as_ever(
    spark: SparkSession, tier: Path
) -> None:
    first, second = rows_of(tier)
    ours = segment(1, SegmentState.COPY_SEGMENT_FINISHED)
    put(tier, ours.segment_id, ours.start_offset)
    going = replace(first, state=SegmentState.DELETE_SEGMENT_STARTED)
    report = compared(spark, tier, [ours, going, second])
    objects, segments = counts(report)
    assert (objects["live"], sum(objects.values()), segments) == (6, 9, {})
    assert "foreign" not in objects


def test_while_kafkas_topic_has_the_truth_a_nodes_rows_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind a way back, brokers delete segments that the node still lists."""
    answers: dict[str, dict[str, list[Any]]] = {
        "/v1/topics": {"topics": [{"topic": "orders"}]},
        "/v1/topics/orders": {
            "partition_list": [
                {"topic_id": str(PARTITION.topic_id), "partition": 0, "mode": "delegated"},
                {"topic_id": str(PARTITION.topic_id), "partition": 1, "mode": "sidecar"},
            ]
        },
    }
    phase = ""

    class Client:
        def __init__(self, _address: NodeAddress) -> None: ...

        def get(self, path: str, **_params: object) -> object:
            assert path == "/v1/migration"
            return {"phase": phase}

        def pages(self, path: str, key: str, **_params: object) -> list[Any]:
            return answers[path][key]

        def close(self) -> None: ...

    monkeypatch.setattr(known_rows, "NodeClient", Client)
    address = NodeAddress("http://127.0.0.1:1")
    for phase in ("none", "kafka", "switching", "quorum", "done", "back"):
        told = [each.is_current for each in known_rows._partitions(address)]
        assert told == [phase not in ("kafka", "switching"), True], phase
