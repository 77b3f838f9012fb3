"""A broker's segment metadata: our plug-in beside Kafka's TopicBasedRemoteLogMetadataManager.

`python -m bench.broker_metadata [SEGMENTS [STARTS [ADDS]]]` (100,000, 3 and 100). First a small
Java program adds and finishes segments through either manager, as a broker does, and looks each up.
Then each of two brokers gets so many rows of a topic, one offset each, and one more topic whose
records only the tier has; it is stopped and started, and a consumer asks for the first of these.
The node beside ours runs on; in as many more starts it is started at the same moment.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition

from bench.command_line import numbers
from bench.metadata_node import metadata_node, propose
from bench.table import Measure, write_table
from bench.tiering_brokers import MIB, TIERED, Side, fill, kafkas, ours, wait_for_tier
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from strandline.node import ambient
from tests.e2e.node_process import NodeProcess
from tests.kafka_suites.nodes import format_log_dir
from tests.real.broker_plugin import plugin_jar
from tests.real.kafka import kafka_jars
from tests.real.kafka_clients import NewRecord, produce
from tests.real.maven import require_java

PROGRAM = Path(__file__).parent / "java" / "MetadataCalls.java"
OURS = "io.strandline.broker.StrandlineMetadataManager"
KAFKAS = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
FEW, MANY, TIMED = "few", "many", "timed"
FEW_BYTES = 8 * MIB
ROWS_A_STEP = 500
CALLS_DEADLINE_S = 600
READ_DEADLINE_S = 300.0
UPLOAD_MS = 3_600_000
ADD_SHARE_MAX = 0.2
START_SHARE_MAX = 0.1


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from a broker's start until it answers, and until the first tiered record."""

    answered_s: float
    read_s: float

    @property
    def wait_s(self) -> float:
        """Seconds from the answer to the record."""
        return self.read_s - self.answered_s


def calls(
    work: str, topic: str, topic_id: str, count: int, settings: dict[str, str]
) -> list[float]:
    """Run the Java program; the milliseconds that it says."""
    manager, jar = (OURS, str(plugin_jar())) if "cluster.id" in settings else (KAFKAS, "")
    command = [
        *(require_java(), "-Xmx1g", "-cp", f"{kafka_jars()}/*"),
        "-Dorg.apache.logging.log4j.level=ERROR",
        *(str(PROGRAM), work, manager, jar, topic, topic_id, str(count)),
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALLS_DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{PROGRAM.name}: {done.stdout[-2_000:]}{done.stderr[-4_000:]}")
    return [float(line.split()[1]) / 1e6 for line in done.stdout.splitlines() if "took" in line]


def topic_based(side: Side, home: Path) -> dict[str, str]:
    """The settings of Kafka's manager, as the broker gives them."""
    return {
        "remote.log.metadata.common.client.bootstrap.servers": side.broker.bootstrap,
        "remote.log.metadata.topic.replication.factor": "1",
        "log.dir": str(home),
    }


def our_adds(home: Path, count: int) -> list[float]:
    """Milliseconds of each segment through ours, with a node that leads a directory of one log."""
    topic_id, cluster_id = str(ambient.new_uuid()), str(ambient.new_uuid())
    replica = home / "log" / f"{TIMED}-0"
    replica.mkdir(parents=True)
    format_log_dir(home / "log", cluster_id, "1")
    (replica / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (replica / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    (replica / f"{0:020}.log").touch()
    (home / "tier").mkdir()
    sections: dict[str, dict[str, object]] = {
        "kafka": {"log_dirs": [str(home / "log")]},
        "stores.main": {"kind": "filesystem", "path": str(home / "tier")},
        "http": {"anonymous_role": "admin"},
    }
    with NodeProcess(home / "node", sections) as node:
        settings = {"cluster.id": cluster_id, "strandline.node.url": node.url}
        return calls("time", TIMED, topic_id, count, settings)


def make_topics(side: Side, segments: int) -> str:
    """A topic whose first records only the tier has, and one for the rows, whose id is returned."""
    few = {**TIERED, "segment.bytes": str(MIB), "local.retention.bytes": "1"}
    side.broker.create_topic(FEW, config=few)
    fill(side.broker, FEW, 1, FEW_BYTES)
    asyncio.run(wait_for_tier(side, FEW, 1))
    side.broker.wait_until(lambda: len(side.broker.segment_files(FEW, 0)) == 1, "local retention")
    side.broker.create_topic(MANY, config=TIERED)
    produce(side.broker.bootstrap, MANY, 0, (NewRecord(b"") for _ in range(segments)))
    admin = side.broker.admin()
    described = admin.describe_topics(TopicCollection([MANY]))[MANY].result(30)
    return str(described.topic_id).translate(str.maketrans("+/", "-_"))  # as Kafka writes it


async def add_rows(data: Path, topic_id: str, segments: int) -> None:
    """Add and finish segments by the node's own metadata manager; the node does not run."""
    tip = TopicIdPartition(MANY, Uuid.parse(topic_id), 0)
    async with metadata_node(data) as node:
        state = node.manager.partition_state(tip)
        assert state is not None
        assert state.claim is not None
        now_ms = ambient.now_ms()
        template = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(tip, ambient.new_uuid()),
            start_offset=0, end_offset=0, broker_id=1, max_timestamp_ms=now_ms,
            event_timestamp_ms=now_ms, leader_epochs=((0, 0),), size_bytes=1_000,
            custom_metadata=None, state=SegmentState.COPY_SEGMENT_STARTED,
            token=state.claim.token, writer=state.claim.incarnation,
            upload_deadline_ms=now_ms + UPLOAD_MS,
        )  # fmt: skip
        for first in range(0, segments, ROWS_A_STEP):
            rows = [
                replace(
                    template,
                    segment_id=RemoteLogSegmentId(tip, ambient.new_uuid()),
                    start_offset=at, end_offset=at, leader_epochs=((0, at),),
                )
                for at in range(first, min(first + ROWS_A_STEP, segments))
            ]  # fmt: skip
            await propose(node, rows)
        after = node.manager.partition_state(tip)
        assert after is not None
        assert after.segment_count == segments, after


def first_read_s(side: Side, *, with_node: bool = False) -> Start:
    """Start the stopped broker, and stop it once a consumer has the first tiered record."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",  # Java's default
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "fetch.error.backoff.ms": 20,
            "log_level": 0,
        }
    )
    began = time.perf_counter()
    if with_node and side.node is not None:
        side.node.spawn()
    side.broker.spawn()
    answered_s = None
    consumer.assign([TopicPartition(FEW, 0, 0)])
    while time.perf_counter() - began < READ_DEADLINE_S:
        if answered_s is None:
            try:
                consumer.list_topics(FEW, timeout=0.1)
                answered_s = time.perf_counter() - began
            except KafkaException:
                continue
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            took_s = time.perf_counter() - began
            assert message.offset() == 0
            consumer.close()
            side.broker.wait_until_ready()
            side.broker.stop()
            return Start(answered_s, took_s)
    raise TimeoutError(f"nothing of the tier was read within {READ_DEADLINE_S} s")


def our_starts(home: Path, segments: int, starts: int) -> tuple[list[Start], list[Start]]:
    """Start our broker beside a running node, then both at once; the starts of each."""
    with ours(home) as side:
        assert side.node is not None
        topic_id = make_topics(side, segments)
        node = side.node
        side.broker.wait_until(lambda: f"claimed {MANY}-0" in node.log, "the claim")
        side.broker.stop()
        side.node.stop()
        asyncio.run(add_rows(home / "node" / "data", topic_id, segments))
        side.node.start()
        beside = [first_read_s(side) for _ in range(starts)]
        side.node.stop()
        at_once = []
        for _ in range(starts):
            at_once.append(first_read_s(side, with_node=True))
            side.node.stop()
    return beside, at_once


def their_numbers(
    home: Path, segments: int, starts: int, adds: int
) -> tuple[list[float], list[Start]]:
    """Add segments to Kafka's manager and start it: milliseconds of each segment, and the
    starts.
    """
    with kafkas(home) as side:
        settings = topic_based(side, home)
        took = calls("time", TIMED, str(ambient.new_uuid()), adds, settings)
        calls("fill", MANY, make_topics(side, segments), segments, settings)
        side.broker.stop()
        return took, [first_read_s(side) for _ in range(starts)]


def main() -> None:
    """Run with the sizes of the command line."""
    segments, starts, adds = numbers(__doc__, segments=100_000, starts=3, adds=100)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "adds").mkdir()
        mine = our_adds(home / "adds", adds)
        theirs, their_starts = their_numbers(home / "kafkas", segments, starts, adds)
        beside, at_once = our_starts(home / "ours", segments, starts)
    add_bound = ADD_SHARE_MAX * median(theirs)
    start_bound = START_SHARE_MAX * median([each.read_s for each in their_starts])
    reads = [each.read_s for each in beside]
    measures = [
        Measure(
            "add, finish, look up: ours", "ms", mine, f"median <= {add_bound:.1f}",
            median(mine) <= add_bound,
        ),
        Measure("... TopicBased", "ms", theirs),
        Measure(
            "start to first tiered read: ours", "s", reads, f"median <= {start_bound:.2f}",
            median(reads) <= start_bound,
        ),
        Measure("... its node started with it", "s", [each.read_s for each in at_once]),
        Measure("... TopicBased", "s", [each.read_s for each in their_starts]),
        Measure("of it, behind the first answer: ours", "s", [each.wait_s for each in beside]),
        Measure("... its node started with it", "s", [each.wait_s for each in at_once]),
        Measure("... TopicBased", "s", [each.wait_s for each in their_starts]),
    ]  # fmt: skip
    write_table(
        "A broker's segment metadata", measures, packages=("confluent-kafka",),
        notes=(f"{segments:,} segments in one partition",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
