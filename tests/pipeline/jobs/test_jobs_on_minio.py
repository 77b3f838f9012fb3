"""Jobs over a bucket in MinIO beside a real node: as they are typed, and with orphans for the
node's collector.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import httpx
import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue import snapshot_segments
from pipeline.catalogue.manifest_reading import OpenBucket
from pipeline.catalogue.node_address import NodeAddress
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.catalogue.tiered_segment import Catalogue
from pipeline.cli.main import app
from pipeline.cli.options import ENVIRONMENT_OPTIONS
from pipeline.jobs.job import JobContext
from pipeline.jobs.reconcile import ReconcileOptions, ReconcileReport, run
from pipeline.reconcile.known_rows import snapshot_knowledge
from pipeline.reconcile.verdict import DELETED
from rlm.format.object_keys import ObjectSuffix, segment_keys, snapshots_prefix
from rlm.reconcile.adoption_plan import StoredSegment
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.bucket import stored_objects
from tests.e2e.node_process import NodeProcess
from tests.pipeline.catalogue.test_manifest_catalogue import PREFIX, put
from tests.real.process_tree import kill_tree
from tests.real.s3_admin import client
from tests.real.spark_jvm import quick_start, spark_home
from tests.strandline.captured_node import SEGMENTS, ask, captured_node, uploads
from tests.strandline.command import COMMAND, environment, invoke
from tests.strandline.conftest import COPY_DEADLINE_S

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]

OTHERS = TopicIdPartition("somebody-elses", Uuid(b"nobodys topic id"), 0)
OTHERS_SEGMENTS = 350
"""Of one partition: more objects than a page of a listing has."""

Told = dict[TopicIdPartition, list[tuple[object, ...]]]
"""What a catalogue tells a reader of the segments of each partition."""

HALF = RemoteLogSegmentId(OTHERS, Uuid(b"half of a copy.."))
UPLOADS_AT_ONCE = 8
TYPED_DEADLINE_S = 240
NOW_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Bucket:
    """`config`'s prefix in MinIO, the node that copied into it, and what has been put beside."""

    config: StoreConfig
    node: NodeProcess
    s3: Any

    @property
    def address(self) -> str:
        return f"s3://{self.config.bucket}/{self.config.prefix.rstrip('/')}"

    def put(self, key: str, data: bytes) -> None:
        self.s3.put_object(Bucket=self.config.bucket, Key=key, Body=data)


@pytest.fixture(scope="module")
def bucket(
    tmp_path_factory: pytest.TempPathFactory, minio_store_config: StoreConfig
) -> Iterator[Bucket]:
    home = tmp_path_factory.mktemp("jobs")
    config = replace(minio_store_config, prefix="jobs/prod/")
    snapshots = {"snapshot_upload_interval_s": 1.0, "snapshot_upload_check_s": 0.5}
    with captured_node(home, config, {"metadata": snapshots}) as node:
        there = Bucket(config, node, client(config))
        put_others(there, home / "others")
        yield there
        there.s3.close()


def put_others(bucket: Bucket, folder: Path) -> None:
    """Whole segments that the node never knew, half of one, and objects just outside the prefix."""
    for number in range(OTHERS_SEGMENTS):
        start = 10 * number
        put(folder, number + 1, start, start + 9, partition=OTHERS)
    files = [path for path in folder.rglob("*") if path.is_file()]
    keys = [f"{bucket.config.prefix}{path.relative_to(folder / PREFIX)}" for path in files]
    with ThreadPoolExecutor(UPLOADS_AT_ONCE) as threads:
        list(threads.map(bucket.put, keys, [path.read_bytes() for path in files]))
    half = segment_keys(bucket.config.prefix, HALF, 0)
    bucket.put(half.indexes, b"half")
    bucket.s3.create_multipart_upload(Bucket=bucket.config.bucket, Key=half.log)
    for stem in ("jobs/prod", "jobs/prod2/codecs-AAAAAAAAAAAAAAAAAAAAAA/0/x", "jobs/pro"):
        bucket.put(f"{stem}.log", b"outside")


def every_segment(catalogue: Catalogue) -> Told:
    """What a reader is told of each, but for the log start inside of a segment, which a bucket does
    not tell.
    """
    partitions = [each for topic in catalogue.topics() for each in catalogue.partitions(topic)]
    catalogue.prepare(partitions)
    return {
        partition: [
            (one.segment_id, one.start_offset, one.end_offset, one.last_offset, one.log_bytes,
             one.max_timestamp_ms, one.txn_index_empty, one.leader_epochs, one.objects)
            for one in catalogue.segments(partition)
        ]
        for partition in partitions
    }  # fmt: skip


def s3_options(config: StoreConfig) -> dict[str, str]:
    return {
        "strandline.s3.endpoint": str(config.endpoint_url),
        "strandline.s3.path-style": "true",
        "strandline.s3.access.key": str(config.access_key_id),
        "strandline.s3.secret.key": str(config.secret_access_key),
    }


def of_bucket_alone(bucket: Bucket) -> Told:
    options = s3_options(bucket.config) | {"strandline.store": bucket.address}
    with closing(open_catalogue(options, {})) as catalogue:
        return every_segment(catalogue)


def of_node(bucket: Bucket) -> Told:
    options = s3_options(bucket.config)
    keys = {name: value for name, value in options.items() if name.endswith(".key")}
    with closing(open_catalogue(keys | {"strandline.url": bucket.node.url}, {})) as catalogue:
        return every_segment(catalogue)


def test_a_bucket_alone_tells_of_the_same_segments_as_its_node(bucket: Bucket) -> None:
    alone, told = of_bucket_alone(bucket), of_node(bucket)
    assert len(alone.pop(OTHERS)) == OTHERS_SEGMENTS
    assert alone == told
    assert sum(map(len, told.values())) == SEGMENTS


def test_a_snapshot_that_its_node_uploaded_stands_for_the_manifests(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_segments, "MANIFESTS_MIN", 1)
    by_manifest: list[TopicIdPartition] = []
    found: Told = {}
    read = OpenBucket.read

    async def counted(self: OpenBucket, group: Sequence[StoredSegment]) -> object:
        by_manifest.extend(each.segment_id.partition for each in group)
        return await read(self, group)

    def only_others_are_read() -> bool:
        by_manifest.clear()
        found.update(of_bucket_alone(bucket))
        return by_manifest == [OTHERS] * OTHERS_SEGMENTS

    monkeypatch.setattr(OpenBucket, "read", counted)
    bucket.node.wait_until(
        only_others_are_read, "a snapshot with every segment", deadline_s=COPY_DEADLINE_S
    )
    assert len(found.pop(OTHERS)) == OTHERS_SEGMENTS
    assert found == of_node(bucket)


def typed_here(
    bucket: Bucket, spark: SparkSession, *commands: list[object]
) -> Iterator[dict[str, Any]]:
    """The commands' reports, on the session that runs; keys come as `--config` hands them over."""
    env = {ENVIRONMENT_OPTIONS: json.dumps(s3_options(bucket.config))}
    for command in commands:
        with mock.patch.object(SparkSession, "stop", return_value=None):
            done = CliRunner().invoke(
                app, [*map(str, command), "--json"], env=env, catch_exceptions=False
            )
        assert done.stdout.startswith("{"), done.stderr
        yield json.loads(done.stdout) | {"code": done.exit_code}
    assert spark.range(1).count() == 1


@contextmanager
def typed(bucket: Bucket, *command: object) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, while the caller does something else. Keys are in its
    environment, as they are for the tools of AWS.
    """
    config = bucket.config
    process = subprocess.Popen(
        [
            *COMMAND,
            "pipeline",
            *map(str, command),
            *("-o", f"strandline.s3.endpoint={config.endpoint_url}"),
            *("-o", "strandline.s3.path-style=true", "--json", "--master", "local[2,4]"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
            *(f"--conf={name}={value}" for name, value in quick_start().items()),
        ],
        env=environment()
        | {
            "AWS_ACCESS_KEY_ID": str(config.access_key_id),
            "AWS_SECRET_ACCESS_KEY": str(config.secret_access_key),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill_tree(process.pid)
        process.communicate()


def newest_snapshot(bucket: Bucket, folder: Path, deleted: int) -> Path:
    """The metadata's snapshot in the store, as an operator takes it from there: one that knows of
    so many deleted segments.
    """
    folder.mkdir()
    found: list[Path] = []

    def holds() -> bool:
        prefix = snapshots_prefix(bucket.config.prefix)
        listed = bucket.s3.list_objects_v2(Bucket=bucket.config.bucket, Prefix=prefix)
        key = max(each["Key"] for each in listed["Contents"])
        path = folder / key.rpartition("/")[2]
        if not path.exists():
            path.write_bytes(
                bucket.s3.get_object(Bucket=bucket.config.bucket, Key=key)["Body"].read()
            )
            states = [row["state"] for row in snapshot_knowledge(path)]
            if states.count(DELETED) == deleted:
                found.append(path)
        return bool(found)

    bucket.node.wait_until(holds, "a snapshot", deadline_s=COPY_DEADLINE_S)
    return found[0]


def test_jobs_are_typed_with_the_address_of_the_bucket(
    bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    there = stored_objects(bucket.config)
    store, topics = ["--store", bucket.address], ["--topic", "codecs", "--topic", "events"]
    lake = f"s3://{bucket.config.bucket}/jobs/lake"
    scrub: list[object] = ["scrub", "--url", bucket.node.url, *topics]
    by_file: list[object] = [*scrub, "--state", tmp_path / "scrub.jsonl"]
    rebuilt, used, compared, exported, whole = typed_here(
        bucket,
        spark,
        ["rebuild", *store, "--output", tmp_path],
        ["usage", *store, "--output", tmp_path / "usage"],
        ["reconcile", "--url", bucket.node.url, "--table", tmp_path / "verdicts"],
        ["export", *store, *topics, "--to", lake],
        by_file,
    )
    with damaged(bucket, "events") as key:
        scrubbed, again = typed_here(bucket, spark, scrub, by_file)
    assert rebuilt["segments"] == SEGMENTS + OTHERS_SEGMENTS
    assert {name: left["segments"] for name, left in rebuilt["left_out"].items()} == {
        "incomplete": 1
    }
    counted = {each["topic"]: each for each in used["topics"]}
    assert counted[OTHERS.topic]["objects"] == 3 * OTHERS_SEGMENTS + 1
    assert counted[OTHERS.topic]["segments"] == OTHERS_SEGMENTS
    assert all(Path(each).stat().st_size > 1_000 for each in used["files"])
    counts = {name: found["count"] for name, found in compared["objects"].items()}
    assert (counts["live"], counts["orphan"]) == (3 * SEGMENTS, 0)
    assert counts["foreign"] == 3 * OTHERS_SEGMENTS + 1
    assert compared["segments"]["incomplete"]["count"] == 1
    (dangling,) = compared["dangling_uploads"]["examples"]
    assert f"{HALF.id}.log upload " in dangling
    assert exported["rows"] > 0
    assert (whole["segments"], whole["damaged"], whole["posted"]) == (SEGMENTS, 0, True)
    assert (scrubbed["segments"], scrubbed["damaged"], scrubbed["known"]) == (SEGMENTS, 1, 0)
    assert (scrubbed["code"], scrubbed["posted"]) == (ExitCode.INCOMPLETE, True)
    assert (again["damaged"], again["known"]) == (1, SEGMENTS - 1), "the node lists one as damaged"
    assert_node_shows_scrub(bucket.node, again["partitions"], key)
    assert stored_objects(bucket.config) == there, "nothing was changed"
    listed = duckdb.sql(f"select key from '{tmp_path}/verdicts/*.parquet'").fetchall()
    assert there.keys() <= {key for (key,) in listed}
    assert len(listed) == len(set(listed))


@contextmanager
def damaged(bucket: Bucket, topic: str) -> Iterator[str]:
    """The key of the topic's first log, of which meanwhile one byte is wrong."""
    where = bucket.config.bucket
    key = min(
        key
        for key in stored_objects(bucket.config)
        if f"/{topic}-" in key and key.endswith(ObjectSuffix.LOG)
    )
    right = bucket.s3.get_object(Bucket=where, Key=key)["Body"].read()
    middle = len(right) // 2
    bucket.put(key, right[:middle] + bytes([right[middle] ^ 1]) + right[middle + 1 :])
    try:
        yield key
    finally:
        bucket.put(key, right)


def assert_node_shows_scrub(
    node: NodeProcess, posted: list[dict[str, Any]], damaged_key: str
) -> None:
    """Each partition as the job's report has it; of each segment when it was read, and damage. The
    first segments of `events` are among them, of which the log start has passed a part.
    """
    with httpx.Client(base_url=f"{node.url}/v1/") as http:
        page = http.get("jobs/scrub").json()
        assert page["damaged_segments"] == 1
        shown = [{key: of[key] for key in of if key != "damage"} for of in page["partitions"]]
        by_partition = itemgetter("topic", "partition")
        assert sorted(shown, key=by_partition) == sorted(posted, key=by_partition)
        told: list[str] = []
        for partition in posted:
            segments = f"topics/{partition['topic']}/partitions/{partition['partition']}/segments"
            for listed in http.get(segments).json()["segments"]:
                segment = http.get(f"{segments}/{listed['segment_id']}").json()
                assert segment["last_scrubbed_ms"] == partition["scrubbed_at_ms"]
                told += {each["object"] for each in segment["damage"]}
    assert told == [damaged_key]


class Killed(BaseException):
    """The job's process ends here."""


def put_late(bucket: Bucket, keys: Iterable[str]) -> None:
    """A zombie's PUTs, done after DELETE_SEGMENT_FINISHED."""
    for key in keys:
        bucket.put(key, b"late")


def reconciled(
    bucket: Bucket,
    spark: SparkSession,
    wait: Callable[[float], None] = lambda _: None,
    **given: Any,
) -> ReconcileReport:
    """One run of the job; `wait` is called while the collector runs."""
    where = s3_options(bucket.config) | {"strandline.store": bucket.address}
    plain: dict[str, Any] = {
        "node": NodeAddress(bucket.node.url), "snapshot": None, "table": None, "csv": False,
        "apply": False, "accept_objects": 0, "now_ms": lambda: NOW_MS, "wait": wait,
    }  # fmt: skip
    context = JobContext(spark, where, open_catalogue(where, {}), Console(file=StringIO()))
    return run(context, ReconcileOptions(**(plain | given)))


def test_orphans_go_by_the_nodes_collector_whatever_is_killed_in_between_and_nothing_else(
    bucket: Bucket, spark: SparkSession, tmp_path: Path
) -> None:
    config, node = bucket.config, bucket.node
    reconcile = partial(reconciled, bucket, spark)
    before = stored_objects(config)
    ask(node, "topics", "delete", "codecs", "--yes", "--grace", "1s")
    ask(node, "topics", "deletion", "codecs", "--wait", "60s")
    kept = stored_objects(config)
    late = sorted(before.keys() - kept.keys())
    assert len(late) >= 9
    put_late(bucket, late)
    bucket.s3.create_multipart_upload(Bucket=config.bucket, Key=late[0])

    snapshot = newest_snapshot(bucket, tmp_path / "snapshots", len(late) // len(ObjectSuffix))
    command = ("reconcile", "--store", bucket.address, "--snapshot", snapshot)
    with typed(bucket, *command) as process:
        collected = ask(node, "collect")
        braked = reconcile(apply=True)
        output, errors = process.communicate(timeout=TYPED_DEADLINE_S)
    assert process.returncode == ExitCode.OK, errors
    by_snapshot = json.loads(output)
    for name in collected["found"].keys() - {"own"}:  # a snapshot may be uploaded at any time
        objects = collected["found"][name]["objects"]
        assert (name, braked.objects[name].count) == (name, objects)
        assert (name, by_snapshot["objects"][name]["count"]) == (name, objects)
    assert (braked.objects["orphan"].count, braked.segments["missing"].count) == (len(late), 0)
    assert (braked.uploads.count, by_snapshot["dangling_uploads"]["count"]) == (2, 2)
    assert [by_snapshot["segments"][each]["count"] for each in ("missing", "incomplete")] == [0, 1]
    assert braked.collection is not None
    assert (braked.collection["state"], braked.ok) == ("stopped", False)
    assert stored_objects(config).keys() == kept.keys() | set(late)

    def kill_node(_: float) -> None:
        if node.running:
            node.kill()

    def kill_job(_: float) -> None:
        raise Killed

    with pytest.raises(RetryLater, match="is the node running"):
        reconcile(kill_node, apply=True, accept_objects=len(late))
    assert kept.keys() <= stored_objects(config).keys()
    node.start()
    put_late(bucket, late)
    with pytest.raises(Killed):
        reconcile(kill_job, apply=True, accept_objects=len(late))
    node.wait_until(
        lambda: invoke("collect", env={"STRANDLINE_URL": node.url}).exit_code == ExitCode.OK,
        "the killed job's pass, which goes on in the node",
        deadline_s=COPY_DEADLINE_S,
    )
    assert reconcile(apply=True, accept_objects=len(late)).ok
    assert stored_objects(config) == kept
    assert uploads(bucket.s3, config.bucket, late[0]) == 0
    assert uploads(bucket.s3, config.bucket, segment_keys(config.prefix, HALF, 0).log) == 1
