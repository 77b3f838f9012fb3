"""A tier that Aiven's plug-in wrote, given to a node as the manual says: rebuild, format, start.

The node then answers all that it answers of its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from pipeline.catalogue.node_address import NodeAddress
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.jobs.job import JobContext
from pipeline.jobs.rebuild import RebuildOptions, run
from pipeline.jobs.reconcile import ReconcileOptions
from pipeline.jobs.reconcile import run as reconcile
from pipeline.process.ambient import now_ms, wait
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_objects import SegmentObjects
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.pipeline.read.aiven_bucket import SMALL, AivenTopic, expected
from tests.strandline.command import invoke
from tests.strandline.conftest import sections

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def node(spark: SparkSession, tmp_path: Path) -> NodeProcess:
    """A node formatted from the snapshot that was made of two buckets, not started."""
    stores = {"main": tmp_path / "comp", "enc": tmp_path / "enc"}
    settings = sections(stores["main"]) | {"topics": {"include": []}}
    settings["stores.main"]["path"] = str(stores["main"])
    settings["stores.enc"] = {"kind": "filesystem", "path": str(stores["enc"])}
    settings["stores.enc.aiven_keys"] = {"key1": str(SMALL / "keys" / "private.pem")}
    for path in stores.values():
        shutil.copytree(SMALL / path.name, path, dirs_exist_ok=True)
    process = NodeProcess(tmp_path / "node", settings)
    process.format()
    process.start()
    process.wait_until_marked(*stores.values())
    process.stop()
    shutil.rmtree(tmp_path / "node" / "data")
    options = {
        "strandline.store": stores["main"].as_uri(),
        "strandline.store.enc": stores["enc"].as_uri(),
    }
    console = Console(file=StringIO())
    context = JobContext(spark, options, open_catalogue(options, {}), console)
    report = run(context, RebuildOptions(tmp_path / "out"))
    assert report.snapshot is not None
    done = invoke("format", "--config", process.config, "--from-snapshot", report.snapshot, "--yes")
    assert done.exit_code == 0, done.stderr
    return process


def told_of(line: dict[str, Any]) -> str:
    """A record's value, as the consumer wrote it down."""
    if line["value"] is None:
        return "null"
    is_text = line["value_encoding"] == "utf-8"
    value = line["value"].encode() if is_text else base64.b64decode(line["value"])
    return hashlib.sha256(value).hexdigest()


def check_topic(url: str, topic: AivenTopic, log: bytes) -> None:
    (segment,) = topic.segments()
    base = f"{url}/v1/topics/{topic.topic}/partitions/0"
    wanted = [
        (row[0], row[1], row[3])
        for row in expected(SMALL / "expected", topic.topic, "read_uncommitted")
        if row[0] <= segment.end_offset
    ]
    for isolation in ("read_uncommitted", "read_committed"):
        asked = {"offset": "0", "isolation": isolation, "max_bytes": "10000000"}
        answer = PLAIN.get(f"{base}/records", params={**asked, "format": "json_lines"})
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        found = [(each["offset"], each["timestamp_ms"], told_of(each)) for each in lines]
        assert found == wanted
    offset, timestamp_ms, _ = wanted[len(wanted) // 2]
    by_time = PLAIN.get(f"{base}/offsets", params={"timestamp": str(timestamp_ms)})
    assert by_time.status_code == 200, by_time.text
    at_or_after = next(row[0] for row in wanted if row[1] >= timestamp_ms)
    assert by_time.json()["offset"] == at_or_after <= offset
    bytes_url = f"{base}/segments/{segment.segment_id.id}"
    for start, end in ((0, len(log)), (100, 101), (300_000, 600_000)):
        part = PLAIN.get(f"{bytes_url}/log", headers={"Range": f"bytes={start}-{end - 1}"})
        assert part.content == log[start:end], part.text[:500]
    for index in ("offset", "timestamp", "leader-epoch", "producer-snapshot"):
        assert PLAIN.get(f"{bytes_url}/indexes/{index}").status_code == 200
    assert PLAIN.get(f"{bytes_url}/indexes/transaction").status_code == 404


def whole_log(topic: AivenTopic) -> bytes:
    """By the tasks' way of reading."""
    (segment,) = topic.segments()
    with OpenStores({"main": topic.store}, (str(SMALL / "keys"),)) as stores:
        return b"".join(map(bytes, SegmentObjects(segment, stores).unchecked_log()))


def check_reconciled(spark: SparkSession, url: str, stores: dict[str, str]) -> None:
    """The node's rows name no store, and each segment is whole in one of them."""
    context = JobContext(spark, stores, open_catalogue(stores, {}), Console(file=StringIO()))
    options = ReconcileOptions(NodeAddress(url), None, None, False, False, 0, now_ms, wait)
    report = reconcile(context, options)
    assert {name: found.count for name, found in report.objects.items() if found.count} == {
        "live": 6, "own": report.objects["own"].count,
    }  # fmt: skip
    assert (report.rows, report.uncompared, report.ok) == (2, 0, True), "\n".join(report.lines())


def test_a_node_serves_a_tier_of_aivens(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    comp, enc = AivenTopic(SMALL, "comp", "comp/"), AivenTopic(SMALL, "compenc", "enc/")
    node.start()
    try:
        check_topic(node.url, comp, whole_log(comp))
        check_topic(node.url, enc, whole_log(enc))
        check_reconciled(
            spark,
            node.url,
            {
                "strandline.store": (tmp_path / "comp").as_uri(),
                "strandline.store.enc": (tmp_path / "enc").as_uri(),
            },
        )
        assert "PRIVATE KEY" not in node.log
    finally:
        node.stop()
