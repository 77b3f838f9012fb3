"""A range of time restored: each partition from its own first record of that time on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from kafka_formats import offset_checkpoint
from kafka_formats.batch_scan import scan
from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from pipeline.jobs import restore as job
from pipeline.jobs.job import JobContext
from pipeline.read.records import read_slices
from pipeline.restore.kafka_target import Progress
from pipeline.restore.produce import COLUMNS
from pipeline.restore.produce_plan import plan_produce
from pipeline.restore.ranges import Wanted
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.pipeline.source.captured_rows import consumed

FROM_MS, TO_MS = 1_760_000_600_000, 1_760_000_800_000
TOPIC = "orders"
WANTED = Wanted(TOPIC, starting_timestamp=str(FROM_MS), ending_timestamp=str(TO_MS))
LATE = Wanted(TOPIC, starting_timestamp=str(FROM_MS * 2))


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    return asyncio.run(tier_captured(tmp_path_factory.mktemp("times") / "bucket", TOPIC))


def offsets_of_the_time() -> dict[int, list[int]]:
    """By partition. The first one's last record is older, its broker having had few."""
    found = {
        number: [
            one.offset for one in consumed(TOPIC, number) if FROM_MS <= one.timestamp_ms < TO_MS
        ]
        for number in range(3)
    }
    assert [bool(offsets) for offsets in found.values()] == [False, True, True]
    return {number: offsets for number, offsets in found.items() if offsets}


def test_by_producing_the_records_of_that_time_are_read_and_no_others(tier: CapturedTier) -> None:
    plan = plan_produce(tier, {}, WANTED, COLUMNS, {})
    found = {
        source.partition: [
            offset
            for batch in read_slices(each.slices, tier.stores, plan.settings)
            for offset in batch.column("offset").to_pylist()
        ]
        for source, each in plan.partitions.items()
    }
    assert found == offsets_of_the_time()
    begun = next(iter(plan.partitions.values())).begun
    noted = {1: Progress(begun.first_offset + 9, begun.text())}
    assert plan_produce(tier, {}, WANTED, COLUMNS, noted).partitions == plan.partitions
    with pytest.raises(NotFound, match="no offset of orders is in the range"):
        plan_produce(tier, {}, LATE, COLUMNS, {})


def test_in_log_directories_a_log_begins_and_ends_with_that_time(
    tier: CapturedTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_here(_: Any, items: Sequence[Any], work: Callable[[Any], Any], **__: Any) -> list[Any]:
        return [work(item) for item in items]

    monkeypatch.setattr(job, "run_tasks", run_here)
    spark = mock.Mock()
    spark.sparkContext.master = "local[1]"
    context = JobContext(spark, {}, tier, Console(quiet=True))
    topic_id = Uuid(b"a topic id of 16")
    job.run(context, job.IntoLogDirs(WANTED, [tmp_path], topic_id=topic_id))
    wanted = offsets_of_the_time()
    there = {path.name: path for path in tmp_path.iterdir() if path.is_dir()}
    assert there.keys() == {f"{TOPIC}-{number}" for number in wanted}
    starts = (tmp_path / "log-start-offset-checkpoint").read_bytes()
    assert offset_checkpoint.parse(starts, source="") == {
        (TOPIC, number): offsets[0] for number, offsets in wanted.items()
    }
    for number, offsets in wanted.items():
        logs = sorted(there[f"{TOPIC}-{number}"].glob("*.log"))
        assert int(logs[0].stem) <= offsets[0]
        *_, last = scan(logs[-1].read_bytes(), source="")
        assert last.header.base_offset <= offsets[-1] <= last.header.last_offset
    with pytest.raises(NotFound, match="no offset of orders is in the range"):
        job.run(context, job.IntoLogDirs(LATE, [tmp_path], topic_id=topic_id))
