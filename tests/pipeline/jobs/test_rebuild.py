"""A lost state against the one that is made of its bucket, row by row, and a node that begins with
it. Real node processes, captured Kafka segments, a store of files, Spark.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.errors import InvalidRequest, NotFound
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.jobs.job import JobContext
from pipeline.jobs.rebuild import RebuildOptions, RebuildReport, run
from rlm.format.manifest import parse_manifest
from rlm.format.object_keys import segment_keys
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import read_snapshot
from rlmm.records.fixed_layout import decode_segment_row
from rlmm.rows import keys, values
from rlmm.rows.keys import RowKind
from rlmm.rows.partitions import decode_partition
from rlmm.rows.rows import MemoryRows
from rlmm.rows.snapshot_rows import from_proposals
from rlmm.segment import RemoteLogSegmentMetadata
from rlmm.view.view import View
from tests.e2e.node_process import NodeProcess
from tests.rlmm.recomputed_state import coverage_rows, expected_coverage_rows
from tests.strandline.command import CAPTURED_SEGMENTS, invoke
from tests.strandline.conftest import copied_segments, sections
from tests.strandline.test_disaster_recovery import reconcile, segments, stored

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
AIVEN_MANIFESTS = Path(__file__).resolve().parents[2] / "data" / "aiven-manifests"
DEADLINE_S = 120


def rebuild(spark: SparkSession, tier: Path, output: Path | None, **more: object) -> RebuildReport:
    options = {"strandline.store": tier.as_uri()}
    console = Console(file=StringIO())
    context = JobContext(spark, options, open_catalogue(options, {}), console)
    return run(context, RebuildOptions(output, **more))  # type: ignore[arg-type]


def rows_of(snapshot: str) -> dict[bytes, bytes]:
    return dict(from_proposals(read_snapshot(OsDisk(), Path(snapshot))))


def of_kind(rows: Iterable[tuple[bytes, bytes]], kind: RowKind) -> dict[bytes, bytes]:
    return {key: value for key, value in rows if key[0] == kind}


def told(row: bytes) -> RemoteLogSegmentMetadata:
    """As far as a manifest tells: not under which claim and by which incarnation it was copied, nor
    when the copy ended, only when it began.
    """
    return replace(
        decode_segment_row(row),
        event_timestamp_ms=0,
        token=-1,
        writer=None,
        upload_deadline_ms=-1,
        finished_at=-1,
    )


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that copied everything and was stopped; its data directory is in `data`."""
    settings = sections(tmp_path / "tier") | {
        "topics": {"include": ["*"]},
        "copier": {"interval_s": 0.5, "takeover_settle_s": 0.1},
    }
    with NodeProcess(tmp_path / "node", settings) as node:
        node.wait_until(
            lambda: copied_segments(node.url) >= CAPTURED_SEGMENTS, "copies", deadline_s=DEADLINE_S
        )
        yield node


def check_rows(before: dict[bytes, bytes], after: dict[bytes, bytes]) -> None:
    """Every row that manifests can carry."""
    for kind in (RowKind.SEGMENT, RowKind.INTERVAL, RowKind.COVERAGE, RowKind.TOPIC_NAME):
        assert of_kind(after.items(), kind).keys() == of_kind(before.items(), kind).keys()
    for kind in (RowKind.HIGHEST_COPIED, RowKind.TOTALS):
        assert of_kind(after.items(), kind) == of_kind(before.items(), kind)
    for key, value in of_kind(before.items(), RowKind.SEGMENT).items():
        assert told(after[key]) == told(value)
    for key, value in of_kind(before.items(), RowKind.COVERAGE).items():
        was, now = (values.decode_covered(0, each) for each in (value, after[key]))
        assert now._replace(finished_at=was.finished_at) == was
    for key, value in of_kind(before.items(), RowKind.LINEAGE).items():
        whole, copied = values.decode_lineage(value), values.decode_lineage(after[key])
        # Without epochs that have nothing in the bucket; the first is open downwards anyway.
        assert set(copied[1:]) <= set(whole)
        assert len(copied) == sum(each.epoch in dict(copied) for each in whole)
    for key, value in of_kind(before.items(), RowKind.PARTITION).items():
        was_row, now_row = decode_partition(value), decode_partition(after[key])
        assert now_row.log_start_offset <= was_row.log_start_offset
        for name in ("topic", "mode", "copy_finished", "copy_started", "size_bytes"):
            assert getattr(now_row, name) == getattr(was_row, name)
        assert now_row.standing_claim is None
    rebuilt = MemoryRows(after.items())
    assert coverage_rows(rebuilt) == expected_coverage_rows(rebuilt)


@pytest.mark.integration
def test_a_lost_state_is_made_anew_and_a_node_goes_on_with_it(
    lost: NodeProcess, spark: SparkSession, tmp_path: Path
) -> None:
    tier, home = tmp_path / "tier", tmp_path / "node"
    contents, objects = segments(lost.url), stored(tier)
    lost.stop()
    view = View.open(home / "data" / "view")
    before = {k: v for k, v in view.rows_in_key_order() if k >= keys.LOGICAL_START}
    view.close()
    report = rebuild(spark, tier, tmp_path / "out")
    assert report.ok
    assert report.snapshot is not None
    assert report.segments == CAPTURED_SEGMENTS
    check_rows(before, rows_of(report.snapshot))
    assert stored(tier) == objects

    shutil.rmtree(home / "data")
    assert f"--from-snapshot {report.snapshot} --yes, once no node" in list(report.lines())[-1]
    done = invoke("format", "--config", lost.config, "--from-snapshot", report.snapshot, "--yes")
    assert done.exit_code == 0, done.stderr
    compared = reconcile(lost.config)
    assert (compared["whole"], compared["missing"], compared["unknown"]) == (
        CAPTURED_SEGMENTS, [], 0,
    )  # fmt: skip
    assert reconcile(lost.config, "--apply")["reconciled"] is True
    lost.start()
    lost.wait_until(
        lambda: lost.log.count("adopted 0 segments of ") >= len(report.partitions),
        "claims",
        deadline_s=DEADLINE_S,
    )
    after = segments(lost.url)
    assert after == contents
    assert stored(tier) == objects  # neither copied again nor deleted


def aiven_bucket(tier: Path) -> int:
    """Objects as Aiven's plug-in left them, by their lengths; returns how many segments."""
    names = sorted(AIVEN_MANIFESTS.glob("*.json"))
    for path in names:
        data = path.read_bytes()
        manifest = parse_manifest(data, source=path.name)
        found = segment_keys("", manifest.segment_id, manifest.start_offset)
        transforms = manifest.transforms
        size = manifest.log_bytes if transforms is None else transforms.chunks.stored_bytes
        (tier / found.log).parent.mkdir(parents=True, exist_ok=True)
        (tier / found.manifest).write_bytes(data)
        (tier / found.log).write_bytes(bytes(size))
        end = max(each.position + each.size for each in manifest.indexes.values())
        (tier / found.indexes).write_bytes(bytes(end))
    return len(names)


def test_a_bucket_of_aivens_becomes_rows_that_nobody_expires(
    spark: SparkSession, tmp_path: Path
) -> None:
    tier = tmp_path / "tier"
    count = aiven_bucket(tier)
    before = stored(tier)
    report = rebuild(spark, tier, tmp_path / "out")
    assert report.segments == count
    assert {each["mode"] for each in report.partitions} == {"READ_ONLY"}
    assert report.snapshot is not None
    rows = of_kind(rows_of(report.snapshot).items(), RowKind.SEGMENT)
    assert {decode_segment_row(each).custom_metadata for each in rows.values()} == {None}
    assert stored(tier) == before
    assert f"written: {report.snapshot}" in report.lines()
    again = rebuild(spark, tier, tmp_path / "out")
    assert again.snapshot == report.snapshot
    assert f"exists already with the same bytes: {report.snapshot}" in again.lines()
    assert (report.as_json()["was_there"], again.as_json()["was_there"]) == (False, True)


def test_what_cannot_be_told_is_left_out_and_named(spark: SparkSession, tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    count = aiven_bucket(tier)
    manifests = sorted(tier.rglob("*.rsm-manifest"))
    manifests[0].write_bytes(manifests[0].read_bytes()[:-10])
    manifests[1].with_suffix(".log").unlink()
    manifests[3].unlink()
    (tier / "a stray ü.txt").write_bytes(b"somebody's")
    report = rebuild(spark, tier, None)
    assert (report.segments, report.snapshot, report.ok) == (count - 3, None, False)
    assert {name: segments for name, (segments, _) in report.left_out.items()} == {
        "damaged": 2, "incomplete": 1,
    }  # fmt: skip
    assert {each["segment_id"] for each in report.examples} == {
        manifests[at].name[21:43] for at in (0, 1, 3)
    }
    asked = frozenset({manifests[2].name[21:43]})
    assert rebuild(spark, tier, None, leave_out=asked).segments == count - 4
    with pytest.raises(InvalidRequest, match="no segment has the id mistyped"):
        rebuild(spark, tier, None, leave_out=asked | {"mistyped"})
    assert json.loads(json.dumps(report.as_json()))["left_out"]["damaged"]["segments"] == 2
    assert "nothing was written" in "\n".join(report.lines())


def test_an_empty_bucket_makes_no_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "tier").mkdir()
    with pytest.raises(NotFound, match="correct bucket and prefix"):
        rebuild(spark, tmp_path / "tier", tmp_path / "out")
