"""`--into-log-dirs` killed before every change that it makes to the disk, and run again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from kafka_formats.errors import Conflict
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import encode_partition_metadata
from pipeline.jobs import restore as job
from pipeline.jobs.job import JobContext
from pipeline.restore.log_directory import FINISHED_FILE
from pipeline.restore.ranges import Wanted
from pipeline.restore.reports import LogDirsReport
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured

EMPTY_LOG = "00000000000000000000.log"
NEW_ID = Uuid(b"a topic id of 16")
SEGMENTS = 2
"""Of each partition."""


class Killed(BaseException):
    """Nothing of ours runs after it."""


@dataclass
class DiskChanges:
    """Those of this process below a folder, as the interpreter tells of them before they are done.
    Killed before the change of the number `kill_before`.
    """

    folder: str = "\0"
    seen: int = 0
    kill_before: int | None = None

    def audit(self, event: str, given: tuple[Any, ...]) -> None:
        written = event == "open" and isinstance(given[1], str) and "w" in given[1]
        changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
        if not (written or changes) or self.folder == "\0" or not self._ours(given):
            return
        self.seen += 1
        if self.seen == self.kill_before:
            raise Killed

    def _ours(self, given: tuple[Any, ...]) -> bool:
        # `shutil.rmtree` gives names in a folder that it has open.
        path, below = os.fspath(given[0]), given[-1] if isinstance(given[-1], int) else -1
        return str(path).startswith(self.folder) or (not os.path.isabs(path) and below >= 0)

    @contextmanager
    def counted(self, folder: Path, kill_before: int | None) -> Iterator[None]:
        self.folder, self.seen, self.kill_before = str(folder), 0, kill_before
        try:
            yield
        finally:
            self.folder = "\0"


CHANGES = DiskChanges()


@pytest.fixture(scope="module", autouse=True)
def _audited() -> None:
    """A hook stays until the process ends; it is deaf but in `counted`."""
    sys.addaudithook(CHANGES.audit)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    """Two partitions, one of which has its log start inside of a segment."""
    tier = asyncio.run(tier_captured(tmp_path_factory.mktemp("tier") / "bucket", "events"))
    assert [len(found) for found in tier.found.values()] == [SEGMENTS] * 2
    return tier


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_here(_: Any, items: Sequence[Any], work: Callable[[Any], Any], **__: Any) -> list[Any]:
        return [work(item) for item in items]

    monkeypatch.setattr(job, "run_tasks", run_here)


def restore(
    tier: CapturedTier, log_dir: Path, topic_id: Uuid | None = None, **wanted: Any
) -> LogDirsReport:
    spark = mock.Mock()
    spark.sparkContext.master = "local[1]"
    context = JobContext(spark, {}, tier, Console(quiet=True))
    (topic,) = tier.topics()
    options = job.IntoLogDirs(Wanted(topic, **wanted), [log_dir], topic_id=topic_id)
    report = job.run(context, options)
    assert isinstance(report, LogDirsReport)
    return report


def stopped_broker(tier: CapturedTier, log_dir: Path) -> Path:
    """It made the topic."""
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\n")
    (log_dir / ".lock").touch()
    for partition in tier.found:
        directory = log_dir / f"{partition.topic}-{partition.partition}"
        directory.mkdir()
        metadata = encode_partition_metadata(partition.topic_id)
        (directory / "partition.metadata").write_bytes(metadata)
        (directory / EMPTY_LOG).write_bytes(b"")
    return log_dir


def everything_in(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def killed(
    tier: CapturedTier, log_dir: Path, before: int, topic_id: Uuid | None = None, **wanted: Any
) -> bool:
    try:
        with CHANGES.counted(log_dir, before):
            restore(tier, log_dir, topic_id, **wanted)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("topic_id", [None, NEW_ID])
def test_a_run_killed_at_any_step_is_gone_on_with_to_the_same_logs(
    tier: CapturedTier, tmp_path: Path, topic_id: Uuid | None
) -> None:
    def log_directory(name: str) -> Path:
        if topic_id is None:
            return stopped_broker(tier, tmp_path / name)
        (tmp_path / name).mkdir()
        return tmp_path / name

    undisturbed = log_directory("undisturbed")
    with CHANGES.counted(undisturbed, None):
        report = restore(tier, undisturbed, topic_id)
    expected, steps = everything_in(undisturbed), CHANGES.seen
    assert [each.segments for each in report.partitions] == [SEGMENTS] * 2
    assert steps > 60, "the hook does not see what is done"
    for step in range(1, steps + 1):
        log_dir = log_directory(f"killed-{step}")
        assert killed(tier, log_dir, step, topic_id), step
        again = restore(tier, log_dir, topic_id)
        assert everything_in(log_dir) == expected, step
        assert [each.log for each in again.partitions] == [each.log for each in report.partitions]
        assert again.ok


def test_one_that_leaves_a_transaction_out_is_gone_on_with_to_the_same_log(tmp_path: Path) -> None:
    tier = asyncio.run(tier_captured(tmp_path / "bucket", "payments"))
    for partition, found in tier.found.items():
        tier = replace(tier, found={partition: [*found[-3:]]})
    (bounds,) = (tier.bounds(partition) for partition in tier.found)
    limits: dict[str, Any] = {"ending_offsets": f'{{"payments": {{"1": {bounds.latest - 23}}}}}'}
    undisturbed = stopped_broker(tier, tmp_path / "undisturbed")
    with CHANGES.counted(undisturbed, None):
        report = restore(tier, undisturbed, **limits)
    assert report.partitions[0].log.left_out_last is not None
    assert not report.ok, "asked offsets are missing"
    for step in range(1, CHANGES.seen + 1):
        log_dir = stopped_broker(tier, tmp_path / f"killed-{step}")
        assert killed(tier, log_dir, step, **limits), step
        again = restore(tier, log_dir, **limits)
        assert everything_in(log_dir) == everything_in(undisturbed), step
        assert [each.log for each in again.partitions] == [each.log for each in report.partitions]


def test_runs_that_are_killed_one_after_the_other_end_at_the_same_logs(
    tier: CapturedTier, tmp_path: Path
) -> None:
    undisturbed = stopped_broker(tier, tmp_path / "undisturbed")
    restore(tier, undisturbed)
    log_dir = stopped_broker(tier, tmp_path / "killed")
    step = 1
    while killed(tier, log_dir, step):
        step += 1
    assert step > 10
    assert everything_in(log_dir) == everything_in(undisturbed)


def test_a_restore_that_is_done_does_nothing_also_when_more_is_tiered(
    tier: CapturedTier, tmp_path: Path
) -> None:
    log_dir = stopped_broker(tier, tmp_path / "data")
    earlier = replace(tier, found={each: found[:-1] for each, found in tier.found.items()})
    first = restore(earlier, log_dir)
    # As a broker does that was started since.
    log = next((log_dir / "events-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"appended")
    (log_dir / "log-start-offset-checkpoint").write_bytes(b"0\n0\n")
    before = everything_in(log_dir)
    for again in (restore(earlier, log_dir), restore(tier, log_dir)):
        assert everything_in(log_dir) == before
        assert [each.log for each in again.partitions] == [each.log for each in first.partitions]
        assert [each.segments_resumed for each in again.partitions] == [SEGMENTS - 1] * 2


def test_another_range_does_not_come_where_a_restored_log_lies(
    tier: CapturedTier, tmp_path: Path
) -> None:
    log_dir = stopped_broker(tier, tmp_path / "data")
    restore(tier, log_dir)
    before = everything_in(log_dir)
    first, second = (tier.bounds(each).earliest + 1 for each in tier.found)
    limits = f'{{"events": {{"0": {first}, "1": {second}}}}}'
    with pytest.raises(Conflict, match="holds a log"):
        restore(tier, log_dir, starting_offsets=limits)
    assert everything_in(log_dir) == before


@pytest.mark.parametrize("kill_before", [None, 100_000, 30])
def test_the_log_of_somebody_else_is_refused_before_and_after_a_kill(
    tier: CapturedTier, tmp_path: Path, kill_before: int | None
) -> None:
    log_dir = stopped_broker(tier, tmp_path / "data")
    if kill_before is not None:
        killed(tier, log_dir, kill_before)
    theirs = log_dir / "events-1" / EMPTY_LOG
    (log_dir / "events-1" / FINISHED_FILE).unlink(missing_ok=True)
    theirs.write_bytes(b"a record")
    before = everything_in(log_dir)
    with pytest.raises(Conflict, match="events-1 holds a log"):
        restore(tier, log_dir)
    assert everything_in(log_dir) == before
