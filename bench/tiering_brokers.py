"""Stock brokers that tier, for the benchmarks: one by our plug-in with a node beside it, one by
Kafka's TopicBasedRemoteLogMetadataManager and LocalTieredStorage (of the jar of its tests), one by
that metadata manager and Aiven's plug-in, which its user has built (docs/notes/copy-and-reads.md).

JVMs compile fully here (C2), as brokers in service do and brokers of tests do not.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer
from kio.schema.list_offsets import v9
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from bench.node_process import cpu_s
from kafka_client.connection import Connection, Endpoint
from strandline.node import ambient
from tests.e2e.bucket import store_settings
from tests.e2e.node_process import NodeProcess
from tests.e2e.tiering_broker import broker_settings
from tests.real.class_data import class_options
from tests.real.kafka import KAFKA_VERSION, KafkaBroker, kafka_class_data
from tests.real.kafka_clients import flush
from tests.real.maven import fetch_jars
from tests.real.minio import MinioServer
from tests.real.process_tree import descendants
from tests.real.s3_admin import make_bucket

MIB = 1 << 20
RECORD_BYTES = 1_000
BATCH_BYTES = 65_536
LATEST_TIERED = -5
TIERED = {"remote.storage.enable": "true", "retention.ms": "-1", "file.delete.delay.ms": "0"}
KAFKAS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
AIVENS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
AIVENS_BUCKET = "aivens"
COPY_DEADLINE_S = 300.0


@dataclass(slots=True)
class Side:
    """A running broker, and the node beside ours."""

    name: str
    broker: KafkaBroker
    node: NodeProcess | None = None

    def node_cpu_s(self) -> float:
        """CPU seconds of the node's processes so far."""
        if self.node is None:
            return 0.0
        return sum(cpu_s(pid) for pid in (self.node.pid, *descendants(self.node.pid)))

    def live_heap_mib(self) -> float:
        """The broker's heap after a full collection."""
        command = ["jcmd", str(self.broker.pid)]
        subprocess.run([*command, "GC.run"], check=True, capture_output=True, timeout=60)
        shown = subprocess.run(
            [*command, "GC.heap_info"], check=True, capture_output=True, text=True, timeout=60
        ).stdout
        used = [line.partition("used ")[2].split("K")[0] for line in shown.splitlines()]
        generations = (
            "new generation" in line or "tenured generation" in line for line in shown.splitlines()
        )
        return sum(int(kib) for kib, counts in zip(used, generations, strict=True) if counts) / 1024


def _broker(home: Path) -> KafkaBroker:
    options = (*class_options(kafka_class_data()), "-XX:TieredStopAtLevel=4")
    broker = KafkaBroker(home, class_options=options)
    broker.format()
    return broker


@contextmanager
def ours(home: Path, minio: MinioServer | None = None, *, sees_disk: bool = True) -> Iterator[Side]:
    """A broker with our plug-in; the store is a folder, or a bucket. Not `sees_disk`: the broker
    sends its segments to the node.
    """
    home.mkdir()
    broker = _broker(home / "broker")
    store: dict[str, object] = {"kind": "filesystem", "path": str(home / "tier")}
    if minio is None:
        (home / "tier").mkdir()
    else:
        store = store_settings(home, minio.store_config)
    sections: dict[str, dict[str, object]] = {
        "kafka": {"log_dirs": [str(broker.log_dir)] if sees_disk else [], "broker": "announced"},
        "stores.main": store,
        "topics": {"include": ["*"]},
        "http": {"anonymous_role": "admin"},
    }
    identity = ("--node-id", str(broker.node_id), "--kafka-cluster-id", broker.cluster_id)
    node = NodeProcess(home / "node", sections)
    try:
        broker.override(broker_settings(node.url))
        node.format(*(() if sees_disk else identity))
        node.start()
        broker.start()
        yield Side("ours", broker, node)
    finally:
        broker.close()
        if node.running:
            node.kill()


@contextmanager
def kafkas(home: Path) -> Iterator[Side]:
    """A broker with Kafka's own managers; the store is a folder."""
    jar = f"org.apache.kafka:kafka-storage:{KAFKA_VERSION}:test"
    jars = fetch_jars(f"kafka-storage-test-{KAFKA_VERSION}", (jar,), alone=True)
    with _kept_in_a_topic("Kafka's", home, KAFKAS, jars, {"dir": str(home / "tier")}) as side:
        yield side


@contextmanager
def aivens(home: Path, minio: MinioServer, jars: Path) -> Iterator[Side]:
    """A broker with Aiven's plug-in of the folder `jars`; the store is a bucket of its own. The
    settings are those of its README, without chunk cache and rate limit.
    """
    store = replace(minio.store_config, bucket=AIVENS_BUCKET)
    make_bucket(store)
    settings = {
        "chunk.size": str(4 * MIB),
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.endpoint.url": str(store.endpoint_url),
        "storage.s3.bucket.name": store.bucket,
        "storage.s3.region": store.region,
        "storage.s3.path.style.access.enabled": "true",
        "storage.aws.access.key.id": str(store.access_key_id),
        "storage.aws.secret.access.key": str(store.secret_access_key),
    }
    with _kept_in_a_topic("Aiven's", home, AIVENS, jars, settings) as side:
        yield side


@contextmanager
def _kept_in_a_topic(
    name: str, home: Path, manager: str, jars: Path, settings: Mapping[str, str]
) -> Iterator[Side]:
    """A broker whose metadata manager is Kafka's; `settings` are of its storage manager."""
    home.mkdir()
    broker = _broker(home / "broker")
    same = {
        line: value
        for line, value in broker_settings("").items()
        if ".manager.class" not in line and ".strandline." not in line
    }
    broker.override(
        {
            **same,
            "remote.log.storage.manager.class.name": manager,
            "remote.log.storage.manager.class.path": f"{jars}/*",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            **{f"rsm.config.{line}": value for line, value in settings.items()},
        }
    )
    try:
        broker.start()
        yield Side(name, broker)
    finally:
        broker.close()


def fill(broker: KafkaBroker, topic: str, partitions: int, size: int) -> None:
    """Write `size` bytes of incompressible records, evenly."""
    noise = random.Random(1).randbytes(MIB)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "batch.size": BATCH_BYTES,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 64 << 10,
            "log_level": 0,
        }
    )
    for number in range(size // RECORD_BYTES):
        start = number * 617 % (MIB - RECORD_BYTES)
        value = noise[start : start + RECORD_BYTES]
        while True:
            try:
                producer.produce(topic, value, partition=number // 16 % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    flush(producer)


class Offsets:
    """Asks a broker which offset of a partition is the last in the tier."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, broker: KafkaBroker) -> Self:
        """Connect."""
        host, port = broker.bootstrap.split(":")
        endpoint = Endpoint(host, int(port))
        return cls(await Connection.open(endpoint, new_nonce=lambda: str(ambient.new_uuid())))

    async def latest_tiered(self, topic: str, partition: int) -> int:
        """The last offset that can be read remotely, -1 for none."""
        asked = v9.request.ListOffsetsPartition(
            partition_index=i32(partition), timestamp=i64(LATEST_TIERED)
        )
        request = v9.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(v9.request.ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),),
        )
        answer: Any = await self._connection.ask(request, v9.ListOffsetsResponse)
        return int(answer.topics[0].partitions[0].offset)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


async def wait_for_tier(side: Side, topic: str, partitions: int) -> None:
    """Wait until every sealed segment of the topic is readable remotely."""
    offsets = await Offsets.open(side.broker)
    end = time.monotonic() + COPY_DEADLINE_S
    for partition in range(partitions):
        active = int(side.broker.segment_files(topic, partition)[-1].stem)
        while await offsets.latest_tiered(topic, partition) < active - 1:
            if time.monotonic() > end:
                raise TimeoutError(f"{topic} is not in the tier after {COPY_DEADLINE_S} s")
            await asyncio.sleep(0.2)
    await offsets.close()


def tiered_bytes(side: Side, topic: str, partitions: int) -> int:
    """Size of the sealed segments, where none was deleted locally yet."""
    return sum(
        path.stat().st_size
        for partition in range(partitions)
        for path in side.broker.segment_files(topic, partition)[:-1]
    )
