"""The job `scrub`: every segment once, resumed where it was, damage told and posted."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.catalogue.tiered_segment import DamagedSegment, PartitionBounds, TieredSegment
from pipeline.cli import running
from pipeline.cli.scrub_command import scrub_command
from pipeline.jobs import scrub
from pipeline.jobs.job import JobContext
from pipeline.jobs.scrub import ScrubOptions, ScrubTask, _Scrub, packed, task_bytes
from pipeline.jobs.scrub_post import DAMAGE_PER_POST, ScrubPost
from pipeline.jobs.scrub_report import PartitionResult, ScrubReport
from pipeline.jobs.scrub_state import ScrubState
from pipeline.jobs.scrub_verdict import MISSING, Finding, Outcome, Verdict
from rlmm.segment import OFFSET_MAX
from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.capture.captured import LOG_DIR
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.rlm.tier import PREFIX


@dataclass
class Catalogued:
    """A folder's segments as a catalogue; those in `forgotten` are not listed after a refresh."""

    tier: FolderTier
    forgotten: tuple[TieredSegment, ...] = ()
    refreshed: bool = False
    tells_deletions: bool = True

    @property
    def stores(self) -> Mapping[str, StoreConfig]:
        return self.tier.stores

    def topics(self) -> Sequence[str]:
        return sorted({partition.topic for partition in self.tier.found})

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        found = sorted(p for p in self.tier.found if p.topic == topic)
        if not found:
            raise NotFound(f"{topic} is not tiered")
        return found

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        segments = self.tier.found[partition]
        return PartitionBounds(segments[0].first_offset, segments[-1].last_offset + 1)

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        return [
            segment
            for segment in self.tier.found[partition]
            if segment.last_offset >= first_offset
            and segment.first_offset <= last_offset
            and not (self.refreshed and segment in self.forgotten)
        ]

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """All is at hand."""

    def refresh(self) -> None:
        self.refreshed = True

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def tier(tmp_path: Path) -> FolderTier:
    return tier_log_dir(LOG_DIR, tmp_path / "tier", "orders", "payments")


def run(spark: SparkSession, catalogue: Catalogued, **options: Any) -> ScrubReport:
    context = JobContext(spark, {}, catalogue, Console(file=io.StringIO()))
    return scrub.run(context, ScrubOptions(task_bytes=20_000, **options))


@pytest.mark.spark
def test_a_scrub_finds_damage_and_goes_on_where_it_was(
    spark: SparkSession, tier: FolderTier, tmp_path: Path
) -> None:
    orders = tier.segments("orders")
    damaged, deleted, lost = orders[1], orders[3], orders[5]
    whole = tier.file(damaged).read_bytes()
    tier.file(damaged).write_bytes(whole[:3_000] + b"\0" + whole[3_001:])
    for segment in (deleted, lost):
        for suffix in ("log", "indexes", "rsm-manifest"):
            tier.file(segment, suffix).unlink()
    state = tmp_path / "scrub.jsonl"
    catalogue = Catalogued(tier, forgotten=(deleted,))
    segments = sum(map(len, tier.found.values()))

    report = run(spark, catalogue, state=state)
    assert not report.ok
    told = json.loads(json.dumps(report.as_json()))
    assert (told["segments"], told["damaged"], told["deleted"], told["unread"]) == (
        segments, 2, 1, 0,
    )  # fmt: skip
    assert [d["segment_id"] for d in told["damage"]] == [
        str(damaged.segment_id.id),
        str(lost.segment_id.id),
    ]
    text = "\n".join(report.lines())
    assert "2 segments are damaged" in text
    assert "put the object back" in text
    assert "the metadata still lists it" in text

    tier.file(damaged).write_bytes(whole)
    again = run(spark, Catalogued(tier), state=state)
    assert again.known == segments - 3
    assert {v.segment_id for p in again.partitions for v in p.damaged} == {
        deleted.segment_id, lost.segment_id,
    }  # fmt: skip


@pytest.mark.spark
def test_a_bucket_alone_with_damaged_segments_is_scrubbed_to_its_end(
    spark: SparkSession, tier: FolderTier, tmp_path: Path
) -> None:
    orders, whole_partition = tier.segments("orders"), tier.segments("orders", 1)
    cut, lacking, unnamed = orders[1], orders[3], orders[5]
    tier.file(unnamed, "rsm-manifest").unlink()
    manifest = tier.file(cut, "rsm-manifest")
    manifest.write_bytes(manifest.read_bytes()[:-5])
    tier.file(lacking).unlink()
    for segment in whole_partition:
        tier.file(segment, "indexes").unlink()
    damaged: list[DamagedSegment] = []
    address = f"{tier.folder.as_uri()}?prefix={PREFIX}"
    catalogue = open_catalogue({"strandline.store": address}, {}, on_damage=damaged.append)
    context = JobContext(spark, {}, catalogue, Console(file=io.StringIO()))
    state = tmp_path / "scrub.jsonl"

    report = scrub.run(context, ScrubOptions(task_bytes=20_000, state=state), damaged)
    told = report.as_json()
    expected = {segment.segment_id for segment in (cut, lacking, unnamed, *whole_partition)}
    assert {v.segment_id for p in report.partitions for v in p.damaged} == expected
    assert (told["segments"], told["damaged"], told["unread"]) == (
        sum(map(len, tier.found.values())), len(expected), 0,
    )  # fmt: skip
    by_id = {v.segment_id: v for p in report.partitions for v in p.damaged}
    (finding,) = by_id[cut.segment_id].findings
    assert (finding.key, finding.position) == (cut.keys(PREFIX).manifest, 0)
    assert "not JSON" in finding.what
    (finding,) = by_id[lacking.segment_id].findings
    assert (finding.key, finding.what) == (lacking.keys(PREFIX).log, "the object is missing")
    assert finding.offset == lacking.start_offset
    text = "\n".join(report.lines())
    assert f"offsets {cut.start_offset} to (unknown):" in text
    assert f"offsets {lacking.start_offset} to {lacking.end_offset}:" in text
    with ScrubState(state) as kept:
        assert len(kept.known(orders, records=False)) == len(orders) - 3

    only = ScrubOptions(topics=("orders",), partitions=(1,))
    report = scrub.run(context, only, damaged)
    assert [p.damaged_segments for p in report.partitions] == [len(whole_partition)]


@pytest.mark.spark
def test_segments_that_the_store_refuses_are_unread_and_the_rest_is_checked(
    spark: SparkSession, tier: FolderTier, tmp_path: Path
) -> None:
    orders = tier.segments("orders")
    refused = orders[:3]  # a task of their own, as the oldest ones that a bucket archived
    for segment in refused:
        refuse(tier, segment)
    damaged = orders[4]
    whole = tier.file(damaged).read_bytes()
    tier.file(damaged).write_bytes(whole[:3_000] + b"\0" + whole[3_001:])
    report = run(spark, Catalogued(tier), state=tmp_path / "scrub.jsonl")
    told = report.as_json()
    assert not report.ok
    assert (told["segments"], told["damaged"], told["unread"]) == (
        sum(map(len, tier.found.values())), 1, len(refused),
    )  # fmt: skip
    assert "symbolic link" in str(told["why_unread"])
    assert any("3 segments could not be read" in line for line in report.lines())


@pytest.mark.spark
def test_a_scrub_to_which_every_segment_is_refused_says_so_as_its_error(
    spark: SparkSession, tier: FolderTier
) -> None:
    for segment in tier.segments("orders"):
        refuse(tier, segment)
    with pytest.raises(Refused, match="not one segment may be read"):
        run(spark, Catalogued(tier), topics=("orders",), partitions=(0,))


def refuse(tier: FolderTier, segment: TieredSegment) -> None:
    """No symbolic link is followed."""
    path = tier.file(segment)
    path.unlink()
    path.symlink_to("/dev/null")


@pytest.mark.spark
def test_the_command_tells_of_a_manifest_that_nobody_can_read(
    spark: SparkSession, tier: FolderTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.file(tier.segments("orders")[0], "rsm-manifest").write_bytes(b"{")
    shared = SimpleNamespace(sparkContext=spark.sparkContext, stop=lambda: None)
    monkeypatch.setattr(running, "open_session", lambda *_, **__: shared)
    report = tmp_path / "report.json"
    address = f"{tier.folder.as_uri()}?prefix={PREFIX}"
    code = scrub_command(topics=["orders"], partitions=[0], store=address, report=report)
    told = json.loads(report.read_text())
    assert (code, told["damaged"]) == (ExitCode.INCOMPLETE, 1)
    assert told["segments"] == len(tier.segments("orders"))


def test_neighbours_are_packed_until_a_task_is_large_enough(tier: FolderTier) -> None:
    segments = tier.segments("orders")
    groups = list(packed(segments, 2 * segments[0].log_bytes))
    assert [each for group in groups for each in group] == segments
    assert {len(group) for group in groups[:-1]} <= {2, 3}
    assert list(packed([], 9)) == []


@pytest.mark.parametrize(
    ("segments", "mib", "expected_mib"), [(3, 1, 256), (100, 64, 800), (100, 512, 1024)]
)
def test_tasks_grow_with_what_there_is_within_bounds(
    tier: FolderTier, segments: int, mib: int, expected_mib: int
) -> None:
    segment = replace(tier.segments("orders")[0], log_bytes=mib << 20)
    assert task_bytes([segment] * segments, cores=4) == expected_mib << 20


def test_a_task_whose_store_gives_nothing_is_tried_again(
    tier: FolderTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread = verdict(tier.segments("orders")[0], Outcome.UNREAD, Finding("k", "no answer", "-"))
    monkeypatch.setattr(scrub, "scrub_segment", lambda *_, **__: unread)
    with pytest.raises(RetryLater, match="no answer"):
        ScrubTask(tier.stores, (), False)(tier.segments("orders")[:2])


def verdict(segment: TieredSegment, outcome: Outcome, *findings: Finding) -> Verdict:
    return Verdict(
        segment.segment_id, segment.start_offset, segment.end_offset, outcome, 9, 7,
        findings=findings,
    )  # fmt: skip


def test_the_state_file_keeps_what_was_found_right(tier: FolderTier, tmp_path: Path) -> None:
    segments = tier.segments("orders")[:4]
    path = tmp_path / "state"
    verdicts = [
        verdict(segments[0], Outcome.OK),
        verdict(segments[1], Outcome.DAMAGED, Finding("k", "w", "a", 1, 2)),
        replace(verdict(segments[2], Outcome.OK), records=True),
        verdict(segments[3], Outcome.UNREAD),
    ]
    with ScrubState(path) as state:
        state.add(verdicts[:2])
        state.add(verdicts[2:])
    with path.open("ab") as file:
        file.write(b'{"segment_id": "torn')
    for _ in range(2):
        with ScrubState(path) as state:
            assert state.known(segments, records=False) == [verdicts[0], verdicts[2]]
            assert state.known(segments, records=True) == [verdicts[2]]
            state.add(verdicts[:1])
    assert path.read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("text", ["[]\n", "something else\n", '{"kind": "other"}\n'])
def test_a_file_of_something_else_is_refused_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match="not the state file"), ScrubState(path):
        pass
    assert path.read_text() == text
    with pytest.raises(InvalidRequest, match="can't be used"), ScrubState(tmp_path / "no" / "s"):
        pass


def lacking_log(tier: FolderTier, segment: TieredSegment) -> Verdict:
    return verdict(segment, Outcome.DAMAGED, Finding(segment.keys(PREFIX).log, MISSING, "-"))


def test_a_segment_that_retention_deletes_while_it_is_read_is_not_damaged(
    tier: FolderTier,
) -> None:
    deleted, damaged, other = tier.segments("orders")[:3]
    catalogue = Catalogued(tier, forgotten=(deleted,))
    settled = _Scrub(catalogue, {}, (), ScrubPost(None)).settled(
        [
            lacking_log(tier, deleted),
            lacking_log(tier, damaged),
            verdict(other, Outcome.DAMAGED, Finding("k", "a wrong byte", "-")),
        ]
    )
    assert [each.outcome for each in settled] == [Outcome.GONE, Outcome.DAMAGED, Outcome.DAMAGED]


def test_in_a_bucket_a_segment_without_its_log_is_damaged_while_its_manifest_is_there(
    tier: FolderTier,
) -> None:
    damaged, deleted = tier.segments("orders")[:2]
    found: list[DamagedSegment] = []
    address = f"{tier.folder.as_uri()}?prefix={PREFIX}"
    catalogue = open_catalogue({"strandline.store": address}, {}, on_damage=found.append)
    assert catalogue.segments(damaged.partition)
    tier.file(damaged).unlink()
    for suffix in ("rsm-manifest", "log"):
        tier.file(deleted, suffix).unlink()
    work = _Scrub(catalogue, {}, (), ScrubPost(None), found)
    settled = work.settled([lacking_log(tier, damaged), lacking_log(tier, deleted)])
    assert [each.outcome for each in settled] == [Outcome.DAMAGED, Outcome.GONE]


class Client:
    """A node that takes posts, or not."""

    def __init__(self, error: Exception | None = None, damaged: Sequence[Any] = ()) -> None:
        self.bodies: list[Any] = []
        self._error = error
        self._damaged = damaged

    def pages(self, path: str, key: str, *, damaged: str) -> Iterator[Any]:
        if self._error is not None:
            raise self._error
        assert (path, key, damaged) == ("/v1/jobs/scrub", "partitions", "true")
        yield from self._damaged

    def post(self, path: str, body: Any) -> Any:
        if self._error is not None:
            raise self._error
        self.bodies.append(body)
        return {}


def test_results_are_posted_in_bounded_bodies(tier: FolderTier) -> None:
    segment = tier.segments("orders")[0]
    damaged = verdict(segment, Outcome.DAMAGED, *[Finding("k", "w", "a")] * 9)
    result = PartitionResult(segment.partition, 0, 99)
    for _ in range(DAMAGE_PER_POST + 5):
        result.add(damaged)
    client: Any = Client()
    post = ScrubPost(client)
    post.add(PartitionResult(segment.partition, 0, 99))
    post.add(result)
    assert [len(body["partitions"]) for body in client.bodies] == [2]
    sent = client.bodies[0]["partitions"][1]
    assert (sent["damaged"], len(sent["damage"])) == (DAMAGE_PER_POST + 5, DAMAGE_PER_POST)
    assert len(sent["damage"][0]["findings"]) == 3
    assert post.posted
    refusing: Any = Client(RetryLater("not now"))
    post = ScrubPost(refusing)
    post.add(result)
    assert (post.posted, post.why_not) == (False, "not now")


@pytest.mark.spark
@pytest.mark.parametrize("named", [True, False], ids=["named", "one of many"])
def test_a_segment_that_the_node_lists_as_damaged_is_read_whatever_the_file_says(
    spark: SparkSession,
    tier: FolderTier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: bool,
) -> None:
    """Another scrub found it since. The result would end the damage at the node."""
    segment, state = tier.segments("orders")[1], tmp_path / "scrub.jsonl"
    run(spark, Catalogued(tier), state=state)
    whole = tier.file(segment).read_bytes()
    tier.file(segment).write_bytes(whole[:3_000] + b"\0" + whole[3_001:])
    damage = [{"segment_id": str(segment.segment_id.id)}] if named else []
    partition = segment.partition
    told = {
        "topic_id": str(partition.topic_id), "partition": partition.partition,
        "damaged": 1, "damage": damage,
    }  # fmt: skip
    client: Any = Client(damaged=[told])
    monkeypatch.setattr(scrub, "open_post", lambda *_: nullcontext(ScrubPost(client)))
    report = run(spark, Catalogued(tier), state=state)
    (damaged,) = [each for result in report.partitions for each in result.damaged]
    assert (damaged.segment_id, report.posted) == (segment.segment_id, True)
    others = sum(map(len, tier.found.values())) - report.known
    assert others == (1 if named else len(tier.found[partition]))


def test_a_node_that_does_not_tell_its_damage_gets_no_results(tier: FolderTier) -> None:
    client: Any = Client(RetryLater("not now"))
    post = ScrubPost(client)
    assert not post.told_damage().may_be(tier.segments("orders")[0].segment_id)
    post.add(PartitionResult(tier.segments("orders")[0].partition, 0, 99))
    post.flush()
    assert (post.posted, post.why_not) == (False, "not now")


@pytest.mark.parametrize("options", [{"partitions": (1,)}, {"task_bytes": 0}])
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ScrubOptions(**options)
