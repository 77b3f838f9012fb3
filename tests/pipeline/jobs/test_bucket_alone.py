"""Kafka's metadata topic is lost, and Aiven's bucket is all that is left of a broker's tier. A node
that begins with what the bucket tells serves it to that broker, which copies on and expires.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_formats.batch_scan import scan
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import parse
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.manifest import IndexType
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from strandline.cli.exit_codes import ExitCode
from tests.e2e.migrating_broker import of_kafka
from tests.e2e.node_process import NodeProcess
from tests.e2e.tiering_broker import TOPIC, TOPIC_CONFIG, broker_settings, node_sections
from tests.pipeline.jobs.test_rebuild import rebuild
from tests.real.kafka import KafkaBroker
from tests.real.kafka_clients import NewRecord, consume_all, produce
from tests.rlm.aiven_writer import AivenWriter
from tests.strandline.command import invoke
from tests.strandline.test_disaster_recovery import reconcile

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(420)]

RECORD_BYTES = 4_000
BATCH = 60
IN_A_SEGMENT = 12
AIVEN = AivenWriter(chunk_bytes=16_384, compressed=True)
SUFFIXES = {
    IndexType.OFFSET: ".index",
    IndexType.TIMESTAMP: ".timeindex",
    IndexType.PRODUCER_SNAPSHOT: ".snapshot",
    IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint",
}


class Site:
    """A broker, a node beside it that is not formatted, and the folder of both remote storages."""

    def __init__(self, tmp_path: Path) -> None:
        self.broker = KafkaBroker(tmp_path / "broker")
        self.kafkas, self.bucket = tmp_path / "kafkas", tmp_path / "tier"
        self.kafkas.mkdir()
        self.bucket.mkdir()
        sections = node_sections(tmp_path, self.broker)
        sections["kafka"]["broker"] = self.broker.bootstrap
        sections["copier"]["takeover_settle_s"] = 0.1
        self.node = NodeProcess(tmp_path / "node", sections)
        self.written = 0

    def write_until_tiered(self) -> None:
        """New records, until all but the last of them are in the tier alone."""
        before = self.written
        for at in range(0, BATCH, 6):  # a batch is no larger than a segment
            values = [(b"%08d" % (before + at + n)) * (RECORD_BYTES // 8) for n in range(6)]
            produce(self.broker.bootstrap, TOPIC, 0, map(NewRecord, values))
        self.written += BATCH
        self.broker.wait_until(
            lambda: self.local_start() >= self.written - IN_A_SEGMENT,
            "all but the newest records to be in the tier alone",
        )

    def local_start(self) -> int:
        return min(int(path.stem) for path in self.broker.segment_files(TOPIC, 0))

    def read_all(self, first: int = 0) -> None:
        records = consume_all(self.broker.bootstrap, TOPIC, 0)
        assert [each.offset for each in records] == list(range(first, self.written))
        assert all(each.value[:8] == b"%08d" % each.offset for each in records if each.value)

    def as_aivens(self) -> int:
        """Write what Kafka's storage has as Aiven's plug-in would have. Returns the segments."""
        logs = sorted(self.kafkas.rglob(f"{TOPIC}-*/*.log"))
        for path in logs:
            row, indexes = segment_of(path)
            keys = segment_keys("", row.segment_id, row.start_offset)
            for suffix, data in AIVEN.objects(row, path.read_bytes(), indexes).items():
                target = self.bucket / f"{keys.stem}{suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        return len(logs)

    def starts_in_bucket(self) -> list[int]:
        """First offsets of the segments that have a manifest, ascending."""
        return sorted(int(path.name[:20]) for path in self.bucket.rglob("*.rsm-manifest"))


def segment_of(log: Path) -> tuple[RemoteLogSegmentMetadata, dict[IndexType, bytes]]:
    """A segment of Kafka's LocalTieredStorage: `<start>-<id>.log` in `<topic>-<n>-<topic id>`."""
    start, id_ = int(log.stem[:20]), Uuid.parse(log.stem[21:])
    folder = log.parent.name
    partition = TopicIdPartition(TOPIC, Uuid.parse(folder[-22:]), 0)
    headers = [batch.header for batch in scan(log.read_bytes(), source=log.name)]
    indexes = {
        kind: path.read_bytes()
        for kind, suffix in SUFFIXES.items()
        if (path := log.with_suffix(suffix)).exists()
    }
    epochs = parse(indexes[IndexType.LEADER_EPOCH], source=log.name)
    row = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, id_),
        start,
        headers[-1].last_offset,
        1,
        max(header.max_timestamp for header in headers),
        max(header.max_timestamp for header in headers),
        tuple((epoch, max(first, start)) for epoch, first in epochs),
        log.stat().st_size,
        None,
        SegmentState.COPY_SEGMENT_FINISHED,
    )
    return row, indexes


@contextmanager
def site_of(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    site.broker.format()
    site.broker.override(of_kafka(site.kafkas))
    try:
        site.broker.start()
        yield site
    finally:
        if site.node.running:
            site.node.kill()
        site.broker.close()


def command(*arguments: object) -> str:
    said = invoke(*arguments)
    assert said.exit_code == ExitCode.OK, said.stdout + said.stderr
    return said.stdout


def test_a_broker_goes_on_with_what_its_bucket_tells(tmp_path: Path, spark: SparkSession) -> None:
    with site_of(tmp_path) as site:
        broker, node = site.broker, site.node
        broker.create_topic(TOPIC, config=TOPIC_CONFIG)
        site.write_until_tiered()
        broker.stop()
        segments = site.as_aivens()
        assert segments > 3
        shutil.rmtree(site.kafkas)  # and nobody will read the metadata topic

        node.format()
        node.start()
        node.wait_until_marked(site.bucket)
        node.stop()
        shutil.rmtree(tmp_path / "node" / "data")
        report = rebuild(spark, site.bucket, tmp_path / "out")
        assert (report.segments, report.ok) == (segments, True)
        command("format", "--config", node.config, "--from-snapshot", report.snapshot, "--yes")
        assert reconcile(node.config, "--apply")["reconciled"] is True
        node.start()
        command("mode", "set", TOPIC, 0, "delegated", "--yes", "--url", node.url)

        broker.override(broker_settings(node.url))
        broker.start()
        site.read_all()
        site.write_until_tiered()
        site.read_all()

        before = site.starts_in_bucket()
        assert len(before) > segments
        broker.delete_records(TOPIC, 0, 40)
        last = max(start for start in before if start <= 40)
        broker.wait_until(
            lambda: site.starts_in_bucket()[0] == last, "what is below 40 to leave the bucket"
        )
        site.read_all(first=40)
        left = [path for path in site.bucket.rglob("*-*.log") if int(path.name[:20]) < last]
        assert left == []
