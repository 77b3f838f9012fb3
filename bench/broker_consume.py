"""Consuming what only the tier has through a broker with our plug-in, from MinIO.

`python -m bench.broker_consume [MIB [ROUNDS]] [--aiven DIR]` (256, 2). By turns: a consumer
(librdkafka) reads a topic of 1 and one of 4 partitions through our broker; the same through a
broker with Kafka's LocalTieredStorage, whose store is a folder, and one with Aiven's plug-in, whose
store is that MinIO; and bare ranged GETs take our objects from MinIO, as many connections as
partitions, 1 MiB after the other, as a consumer fetches. All share the machine's cores.
Amplification is what MinIO wrote to its sockets by what was consumed.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from confluent_kafka import Consumer, TopicPartition

from bench.command_line import numbers_and_aiven
from bench.node_process import cpu_s
from bench.table import Measure, write_table
from bench.tiering_brokers import (
    MIB,
    RECORD_BYTES,
    TIERED,
    Side,
    aivens,
    fill,
    kafkas,
    ours,
    wait_for_tier,
)
from rsm_backends.store_config import StoreConfig
from tests.e2e.bucket import stored_objects
from tests.real.minio import MINIO_VERSION, MinioServer
from tests.real.s3_admin import client

PARTITIONS = (1, 4)
SEGMENT_MIB = 32
RANGE_BYTES = MIB
CONSUME_DEADLINE_S = 300.0
URL_LIFE_S = 3_600
RATIO_MIN = 0.6
AIVENS_RATIO_MIN = 2.0
AMPLIFICATION_MAX = 1.15


@dataclass(slots=True)
class Reads:
    """MB/s of one reader, and bytes that the store sent by bytes read, a sample a round."""

    speeds: list[float] = field(default_factory=list)
    amplification: list[float] = field(default_factory=list)
    broker_cpu: list[float] = field(default_factory=list)
    node_cpu: list[float] = field(default_factory=list)
    """CPU seconds of a GB."""

    def consume(self, minio: MinioServer, side: Side, ends: Sequence[int]) -> None:
        """One round through a broker."""
        broker_s, node_s = cpu_s(side.broker.pid), side.node_cpu_s()
        size = self.add(minio, lambda: consume(side, ends))
        self.broker_cpu.append((cpu_s(side.broker.pid) - broker_s) / size * 1e9)
        self.node_cpu.append((side.node_cpu_s() - node_s) / size * 1e9)

    def add(self, minio: MinioServer, read: Callable[[], int]) -> int:
        """One round; the bytes read."""
        sent, began = written(minio.pid), time.perf_counter()
        size = read()
        self.speeds.append(size / 1e6 / (time.perf_counter() - began))
        self.amplification.append((written(minio.pid) - sent) / size)
        return size


def written(pid: int) -> int:
    """Bytes that a process has given to write(2) so far, of files and sockets."""
    found = re.search(r"wchar: (\d+)", Path(f"/proc/{pid}/io").read_text())
    assert found is not None
    return int(found[1])


def make_topic(side: Side, partitions: int, size: int) -> list[int]:
    """Fill a topic until only the tier has its sealed segments; where each local log begins."""
    topic = f"voyages-{partitions}"
    config = {**TIERED, "segment.bytes": str(SEGMENT_MIB * MIB), "local.retention.bytes": "1"}
    side.broker.create_topic(topic, partitions=partitions, config=config)
    fill(side.broker, topic, partitions, size)
    asyncio.run(wait_for_tier(side, topic, partitions))
    starts = []
    for partition in range(partitions):
        side.broker.wait_until(
            lambda each=partition: len(side.broker.segment_files(topic, each)) == 1,  # type: ignore[misc]
            "local retention",
        )
        starts.append(int(side.broker.segment_files(topic, partition)[0].stem))
    return starts


def consume(side: Side, ends: Sequence[int]) -> int:
    """Read every partition from its start up to `ends`; return the bytes of the values."""
    topic = f"voyages-{len(ends)}"
    consumer = Consumer(
        {
            "bootstrap.servers": side.broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",  # Java's default
            "log_level": 0,
        }
    )
    left = dict(enumerate(ends))
    deadline = time.monotonic() + CONSUME_DEADLINE_S
    consumer.assign([TopicPartition(topic, each, 0) for each in left])
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} was not consumed within {CONSUME_DEADLINE_S} s")
        consumer.consume(5_000, timeout=0.05)
        for at in consumer.position([TopicPartition(topic, each) for each in left]):
            if at.offset >= left[at.partition]:
                del left[at.partition]
                consumer.incremental_unassign([TopicPartition(topic, at.partition)])
    consumer.close()
    return sum(ends) * RECORD_BYTES


def objects(config: StoreConfig, partitions: int) -> list[list[tuple[str, int]]]:
    """Presigned URL and size of each segment's object, of each partition."""
    store = client(config)
    found: list[list[tuple[str, int]]] = [[] for _ in range(partitions)]
    for key, size in sorted(stored_objects(config).items()):
        if key.endswith(".log") and f"voyages-{partitions}" in key:
            asked = {"Bucket": config.bucket, "Key": key}
            url = store.generate_presigned_url("get_object", Params=asked, ExpiresIn=URL_LIFE_S)
            found[int(key.split("/")[-2])].append((url, size))
    store.close()
    return found


def get_all(wanted: Sequence[Sequence[tuple[str, int]]]) -> int:
    """Take the objects of each partition in ranges, over a connection each; return the bytes."""
    with ThreadPoolExecutor(len(wanted)) as threads:
        return sum(threads.map(_get, wanted))


def _get(wanted: Sequence[tuple[str, int]]) -> int:
    connection = HTTPConnection(urlsplit(wanted[0][0]).netloc)
    buffer, total = memoryview(bytearray(RANGE_BYTES)), 0
    for url, size in wanted:
        path = url.partition(connection.host + f":{connection.port}")[2]
        for start in range(0, size, RANGE_BYTES):
            end = min(start + RANGE_BYTES, size)
            connection.request("GET", path, headers={"Range": f"bytes={start}-{end - 1}"})
            answer = connection.getresponse()
            if answer.status != 206:
                raise RuntimeError(f"MinIO answered {answer.status}: {answer.read(500)!r}")
            while count := answer.readinto(buffer):
                total += count
    connection.close()
    return total


def compare(
    sides: Sequence[Side], minio: MinioServer, partitions: int, size: int, rounds: int
) -> list[Measure]:
    """Measure all sides by turns; the first round, which also warms the JVMs, is not counted."""
    ends = [make_topic(side, partitions, size) for side in sides]
    wanted = objects(minio.store_config, partitions)
    gets, reads = Reads(), [Reads() for _ in sides]
    for _ in range(rounds + 1):
        gets.add(minio, lambda: get_all(wanted))
        for side, its_ends, each in zip(sides, ends, reads, strict=True):
            each.consume(minio, side, its_ends)
    for each in (gets, *reads):
        for samples in (each.speeds, each.amplification, each.broker_cpu, each.node_cpu):
            del samples[:1]
    name = f"{partitions} partition{'s' if partitions > 1 else ''}"
    mine, theirs, *aiven = reads
    found = measures(name, gets, mine, theirs, target=not aiven)
    return found + [line for each in aiven for line in aivens_measures(name, mine, each)]


def measures(name: str, gets: Reads, mine: Reads, theirs: Reads, *, target: bool) -> list[Measure]:
    """The table's lines of one topic. `target` is the one beside GETs, which is in force where
    Aiven's plug-in is not there.
    """
    ratios = [a / b for a, b in zip(mine.speeds, gets.speeds, strict=True)]
    return [
        Measure(f"{name}: ours, MinIO", "MB/s", mine.speeds),
        Measure(f"{name}: LocalTieredStorage, a folder", "MB/s", theirs.speeds),
        Measure(f"{name}: ranged GETs", "MB/s", gets.speeds),
        ratio_of_gets(f"{name}: ours, of ranged GETs", ratios, target=target),
        Measure(
            f"{name}: bytes from MinIO by bytes consumed", "x", mine.amplification,
            f"<= {AMPLIFICATION_MAX}", max(mine.amplification) <= AMPLIFICATION_MAX,
        ),
        Measure(f"{name}: the same of ranged GETs", "x", gets.amplification),
        Measure(f"{name}: CPU of our broker", "s/GB", mine.broker_cpu),
        Measure(f"{name}: CPU of our node", "s/GB", mine.node_cpu),
        Measure(f"{name}: CPU of LocalTieredStorage's broker", "s/GB", theirs.broker_cpu),
    ]  # fmt: skip


def ratio_of_gets(name: str, ratios: list[float], *, target: bool) -> Measure:
    """The line of the speed beside ranged GETs."""
    held = (f">= {RATIO_MIN}", median(ratios) >= RATIO_MIN) if target else ("", None)
    return Measure(name, "ratio", ratios, *held)


def aivens_measures(name: str, mine: Reads, aiven: Reads) -> list[Measure]:
    """The lines about Aiven's plug-in."""
    ratios = [a / b for a, b in zip(mine.speeds, aiven.speeds, strict=True)]
    return [
        Measure(f"{name}: Aiven's plug-in, MinIO", "MB/s", aiven.speeds),
        Measure(
            f"{name}: ours, of Aiven's", "ratio", ratios, f">= {AIVENS_RATIO_MIN:g}",
            median(ratios) >= AIVENS_RATIO_MIN,
        ),
        Measure(f"{name}: bytes from MinIO by bytes, Aiven's", "x", aiven.amplification),
        Measure(f"{name}: CPU of Aiven's broker", "s/GB", aiven.broker_cpu),
    ]  # fmt: skip


def main() -> None:
    """Run with the sizes of the command line."""
    (size, rounds), jars = numbers_and_aiven(__doc__, mib=256, rounds=2)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        (home / "minio").mkdir()
        minio = stack.enter_context(MinioServer(home / "minio"))
        sides = [
            stack.enter_context(ours(home / "ours", minio)),
            stack.enter_context(kafkas(home / "kafkas")),
        ]
        if jars is not None:
            sides.append(stack.enter_context(aivens(home / "aivens", minio, jars)))
        found = [
            measure
            for partitions in PARTITIONS
            for measure in compare(sides, minio, partitions, size * MIB, rounds)
        ]
    write_table(
        "Tiered consume",
        found,
        packages=("confluent-kafka",),
        notes=(
            f"MinIO {MINIO_VERSION}",
            f"{size} MiB a topic, segments of {SEGMENT_MIB} MiB, records of {RECORD_BYTES} bytes",
        ),
    )


if __name__ == "__main__":
    main()
