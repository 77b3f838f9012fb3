"""Consumers of a read replica: what only the tier has, from MinIO, and the hot end.

`python -m bench.read_replica [MIB [ROUNDS]] [--aiven DIR]` (256, 3). A stock broker without tiered
storage keeps one segment, a node beside it has the rest. By turns: bare ranged GETs take the
objects, over `GET_CONNECTIONS` connections; librdkafka and the Java consumer
(`kafka-consumer-perf-test`) scan the partition through the node; they scan as much through a stock
broker with our plug-in, that has a node and a store of its own, and one with Aiven's plug-in, in
whose bucket MinIO has the same records. Then a consumer at the end of the log is timed beside one
of the broker itself, and memory is looked at while `IDLE` consumers wait and `SCANNING` scan. All
share the machine's cores: CPU seconds tell more than MB/s.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol

from confluent_kafka import OFFSET_END, Consumer, Message, Producer, TopicPartition

from bench import broker_consume
from bench.broker_consume import (
    AIVENS_RATIO_MIN,
    CONSUME_DEADLINE_S,
    get_all,
    objects,
    ratio_of_gets,
    written,
)
from bench.command_line import numbers_and_aiven
from bench.node_process import cpu_s, peak_mib, resident_mib
from bench.raw_consumers import RawConsumer
from bench.table import Measure, percentile, write_table
from bench.tiering_brokers import MIB, Side, aivens, fill, ours
from kafka_listener.virtual_nodes import port_of
from tests.e2e.bucket import store_settings
from tests.e2e.node_process import NodeProcess
from tests.e2e.tier_client import TierClient
from tests.real.class_data import class_options
from tests.real.kafka import KafkaBroker, kafka_class_data, run_tool
from tests.real.kafka_clients import flush
from tests.real.minio import MINIO_VERSION, MinioServer
from tests.real.ports import ports_in_a_row
from tests.real.process_tree import descendants

TOPIC = "voyages-1"
SEGMENT_MIB = 32
GET_CONNECTIONS = 4
COPY_DEADLINE_S = 300.0
IDLE, SCANNING, SCAN_S = 1_000, 100, 20.0
HOT_RECORDS, HOT_PAUSE_S = 500, 0.02
CPU_MAX, CPU_SHARE_MAX, STORE_MAX, MEMORY_MAX = 1.5, 0.5, 1.1, 400
GIB = 1 << 30
AIVENS = "Aiven's"


@dataclass(slots=True)
class Replica:
    """A broker, and a node that serves consumers. `end` is where the broker's disk begins."""

    broker: KafkaBroker
    node: NodeProcess
    minio: MinioServer
    port: int
    end: int = 0

    @property
    def address(self) -> str:
        """The node's port for the broker."""
        return f"127.0.0.1:{self.broker_port}"

    @property
    def broker_port(self) -> int:
        return port_of(self.port, self.broker.node_id)

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds so far: of the supervisor, of its workers."""
        return cpu_s(self.node.pid), sum(map(cpu_s, descendants(self.node.pid)))

    def prepare(self, size: int) -> None:
        """Fill the topic, and leave its sealed segments to the tier alone."""
        config = {
            "segment.bytes": str(SEGMENT_MIB * MIB),
            "retention.ms": "-1",
            "file.delete.delay.ms": "0",
        }
        self.broker.create_topic(TOPIC, config=config)
        fill(self.broker, TOPIC, 1, size)
        self.end = int(self.broker.segment_files(TOPIC, 0)[-1].stem)
        tier = TierClient(self.node.url, TOPIC, 0)

        def holds(name: str, value: int) -> Callable[[], bool]:
            return lambda: tier.status().get(name) == value

        self.node.wait_until(
            holds("highest_copied_offset", self.end - 1), "copies", deadline_s=COPY_DEADLINE_S
        )
        self.broker.alter_topic(TOPIC, {"retention.bytes": "1"})
        self.node.wait_until(
            holds("local_log_start_offset", self.end), "retention", deadline_s=COPY_DEADLINE_S
        )


class Reader(Protocol):
    """A server that consumers read from; the tier has the records below `end`."""

    @property
    def minio(self) -> MinioServer: ...
    @property
    def address(self) -> str: ...
    @property
    def end(self) -> int: ...
    def cpu_s(self) -> tuple[float, float]: ...


@dataclass(frozen=True, slots=True)
class Tiering:
    """A broker that tiers by itself, with `whose` plug-in."""

    whose: str
    side: Side
    minio: MinioServer
    end: int

    @property
    def address(self) -> str:
        """The address of the broker."""
        return self.side.broker.bootstrap

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds so far: of the broker, of its node."""
        return cpu_s(self.side.broker.pid), self.side.node_cpu_s()


@dataclass(slots=True)
class Scans:
    """The scans of one client, a sample a round: MB/s, CPU s/GiB, bytes from the store by bytes
    read.
    """

    speeds: list[float] = field(default_factory=list)
    first_cpu: list[float] = field(default_factory=list)
    """CPU of the supervisor, or of a broker that tiers by itself."""
    second_cpu: list[float] = field(default_factory=list)
    """CPU of the workers, or of the node beside that broker."""
    from_store: list[float] = field(default_factory=list)

    @property
    def both_cpu(self) -> list[float]:
        """CPU of both."""
        return [a + b for a, b in zip(self.first_cpu, self.second_cpu, strict=True)]

    def add(self, reader: Reader, size: int, scan: Callable[[], float]) -> None:
        """One round; `scan` returns the seconds it took."""
        sent, before = written(reader.minio.pid), reader.cpu_s()
        took = scan()
        after = reader.cpu_s()
        self.speeds.append(size / 1e6 / took)
        self.first_cpu.append((after[0] - before[0]) / size * GIB)
        self.second_cpu.append((after[1] - before[1]) / size * GIB)
        self.from_store.append((written(reader.minio.pid) - sent) / size)

    def measures(self, name: str, gets: Scans, *, target: bool) -> list[Measure]:
        """Lines of the table, of scans through the replica; `target` is the one beside GETs."""
        ratios = [a / b for a, b in zip(self.speeds, gets.speeds, strict=True)]
        both = self.both_cpu
        cpu = median(both) <= CPU_MAX
        return [
            Measure(f"{name}", "MB/s", self.speeds),
            ratio_of_gets(f"{name}, of ranged GETs", ratios, target=target),
            Measure(f"{name}: CPU of the supervisor", "s/GiB", self.first_cpu),
            Measure(f"{name}: CPU of the workers", "s/GiB", self.second_cpu),
            Measure(f"{name}: CPU of both", "s/GiB", both, f"<= {CPU_MAX}", cpu),
            Measure(
                f"{name}: bytes from MinIO by bytes of the log", "x", self.from_store,
                f"<= {STORE_MAX}", max(self.from_store) <= STORE_MAX,
            ),
        ]  # fmt: skip

    def beside(self, name: str, broker: Scans, whose: str) -> list[Measure]:
        """Lines of the table, of these scans beside those through a broker with a plug-in."""
        speed = [a / b for a, b in zip(self.speeds, broker.speeds, strict=True)]
        cpu = [a / b for a, b in zip(self.both_cpu, broker.both_cpu, strict=True)]
        through = f"{name}, a broker with {whose} plug-in"
        times = Measure(f"{name}, of that broker's", "x", speed)
        if whose == AIVENS:
            held = median(speed) >= AIVENS_RATIO_MIN
            times = replace(times, target=f">= {AIVENS_RATIO_MIN:g}", met=held)
        found = [
            Measure(through, "MB/s", broker.speeds),
            times,
            Measure(f"{through}: CPU of the broker", "s/GiB", broker.first_cpu),
            Measure(
                f"{name}: CPU, of that broker's and its node's", "x", cpu, f"<= {CPU_SHARE_MAX}",
                median(cpu) <= CPU_SHARE_MAX,
            ),
            Measure(f"{through}: bytes from MinIO by bytes", "x", broker.from_store),
        ]  # fmt: skip
        if any(broker.second_cpu):
            found.insert(3, Measure(f"{through}: CPU of its node", "s/GiB", broker.second_cpu))
        return found


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rdkafka_scan(address: str, end: int) -> float:
    """The seconds that librdkafka took for the partition up to `end` (exclusive)."""
    begun = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",  # Java's default
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline, at = time.monotonic() + CONSUME_DEADLINE_S, 0
    while at < end:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{TOPIC} was not consumed within {CONSUME_DEADLINE_S} s")
        found: list[Message] = consumer.consume(5_000, timeout=0.05)
        at = max([at, *((each.offset() or 0) + 1 for each in found[-1:] if not each.error())])
    consumer.close()
    return time.perf_counter() - begun


def java_scan(address: str, end: int) -> float:
    """The seconds that Kafka's own tool took for the fetches, compiled fully (C2)."""
    printed = run_tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", address, "--topic", TOPIC, "--num-records", str(end)),
        *("--timeout", "60000", "--hide-header", "--group", f"bench-{time.monotonic_ns()}"),
        class_options=(*class_options(kafka_class_data()), "-XX:TieredStopAtLevel=4"),
    )
    fields = printed.strip().splitlines()[-1].split(", ")
    if int(fields[4]) < end:
        raise RuntimeError(f"the Java consumer read {fields[4]} of {end} records: {printed}")
    return float(fields[7]) / 1000


CLIENTS = (("librdkafka", rdkafka_scan), ("the Java consumer", java_scan))


def hot_latencies(addresses: dict[str, str], bootstrap: str) -> dict[str, list[float]]:
    """Milliseconds from `produce` to `poll`, of each consumer at the end of the log."""
    found: dict[str, list[float]] = {name: [] for name in addresses}
    ready = threading.Barrier(len(addresses) + 1)

    def follow(name: str) -> None:
        settings = {"bootstrap.servers": addresses[name], "group.id": "hot", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_END)])
        consumer.poll(2.0)
        ready.wait()
        while len(found[name]) < HOT_RECORDS and (message := consumer.poll(10.0)) is not None:
            value = message.value()
            if message.error() is None and value is not None:
                found[name].append((time.perf_counter_ns() - int(value)) / 1e6)
        consumer.close()

    threads = [threading.Thread(target=follow, args=(name,)) for name in addresses]
    for thread in threads:
        thread.start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1, "log_level": 0})
    ready.wait()
    for _ in range(HOT_RECORDS):
        producer.produce(TOPIC, str(time.perf_counter_ns()).encode(), partition=0)
        producer.poll(HOT_PAUSE_S)
        time.sleep(HOT_PAUSE_S)
    flush(producer)
    for thread in threads:
        thread.join()
    return found


async def crowd(replica: Replica, end: int) -> tuple[list[float], float]:
    """The largest wait of each scanning consumer, and bytes a second of all of them."""
    idle = [await RawConsumer.open(replica.broker_port, TOPIC) for _ in range(IDLE)]
    scanning = [await RawConsumer.open(replica.broker_port, TOPIC) for _ in range(SCANNING)]
    tasks = [asyncio.create_task(each.idle(end)) for each in idle]
    await asyncio.sleep(5)
    step = replica.end // SCANNING
    tasks += [
        asyncio.create_task(each.scan(number * step, replica.end))
        for number, each in enumerate(scanning)
    ]
    done, _ = await asyncio.wait(tasks, timeout=SCAN_S)
    for task in tasks:
        task.cancel()
    for task in done:
        task.result()
    for each in (*idle, *scanning):
        each.writer.close()
        with suppress(OSError):
            await each.writer.wait_closed()
    total = sum(each.total for each in scanning)
    return [max(each.waits_s, default=SCAN_S) for each in scanning], total / SCAN_S


def memory(replica: Replica) -> list[Measure]:
    """Resident memory of supervisor and workers with a crowd of consumers."""
    pids = [replica.node.pid, *descendants(replica.node.pid)]
    before = sum(map(resident_mib, pids))
    waits, speed = asyncio.run(crowd(replica, log_end(replica.broker)))
    peaks = [peak_mib(pid) for pid in pids]
    most = sum(peaks)
    return [
        Measure("memory before, supervisor and workers", "MiB", [before]),
        Measure(
            f"memory at most, {IDLE} idle and {SCANNING} scanning", "MiB", [most],
            f"< {MEMORY_MAX}", most < MEMORY_MAX,
        ),
        Measure("... of that the supervisor", "MiB", peaks[:1]),
        Measure(f"the longest fetch of each of the {SCANNING}", "s", waits),
        Measure(f"the {SCANNING} together", "MB/s", [speed / 1e6]),
    ]  # fmt: skip


def latency(replica: Replica) -> list[Measure]:
    """Measure the latency of a record at the hot end."""
    addresses = {"replica": replica.address, "broker": replica.broker.bootstrap}
    found = hot_latencies(addresses, replica.broker.bootstrap)
    ours_p50, broker_p50 = (percentile(found[name], 50) for name in addresses)
    allowed = max(broker_p50 + 1, broker_p50 * 1.5)
    return [
        Measure("produce to poll, the broker itself, p50", "ms", [broker_p50]),
        Measure(
            "produce to poll, through the node, p50", "ms", [ours_p50],
            f"<= {allowed:.2g}", ours_p50 <= allowed,
        ),
        Measure("... p99, the broker itself", "ms", [percentile(found["broker"], 99)]),
        Measure("... p99, through the node", "ms", [percentile(found["replica"], 99)]),
    ]  # fmt: skip


def scans(replica: Replica, home: Path, size: int, rounds: int, jars: Path | None) -> list[Measure]:
    """Measure scans by turns; the first round is not counted."""
    flat = [each for of_one in objects(replica.minio.store_config, 1) for each in of_one]
    wanted = [flat[number::GET_CONNECTIONS] for number in range(min(GET_CONNECTIONS, len(flat)))]
    stored = sum(each for _, each in flat)
    gets, replicas = Scans(), [Scans() for _ in CLIENTS]
    with brokers(replica, home, size, jars) as peers:
        by_broker = [[Scans() for _ in CLIENTS] for _ in peers]
        readers: list[Reader] = [replica, *peers]
        for _ in range(rounds + 1):
            begun_s = time.process_time()
            gets.add(replica, stored, lambda: timed(lambda: get_all(wanted)))
            gets.first_cpu[-1] = (time.process_time() - begun_s) / stored * GIB
            for reader, found in zip(readers, (replicas, *by_broker), strict=True):
                read = stored * reader.end // replica.end
                for (_, scan), each in zip(CLIENTS, found, strict=True):
                    each.add(reader, read, partial(scan, reader.address, reader.end))
    for each in (gets, *replicas, *(each for found in by_broker for each in found)):
        for samples in (each.speeds, each.first_cpu, each.second_cpu, each.from_store):
            del samples[:1]
    measures = [
        Measure(f"ranged GETs, {GET_CONNECTIONS} connections", "MB/s", gets.speeds),
        Measure("... CPU of their client", "s/GiB", gets.first_cpu),
    ]
    for number, (name, _) in enumerate(CLIENTS):
        measures += replicas[number].measures(name, gets, target=jars is None)
        for peer, found in zip(peers, by_broker, strict=True):
            measures += replicas[number].beside(name, found[number], peer.whose)
    return measures


@contextmanager
def brokers(replica: Replica, home: Path, size: int, jars: Path | None) -> Iterator[list[Tiering]]:
    """Brokers that tier by themselves, and have tiered the same records."""
    (home / "minio-2").mkdir()
    with ExitStack() as stack:
        other = stack.enter_context(MinioServer(home / "minio-2"))
        sides = [("our", stack.enter_context(ours(home / "plug-in", other)), other)]
        if jars is not None:
            aiven = stack.enter_context(aivens(home / "aivens", replica.minio, jars))
            sides.append((AIVENS, aiven, replica.minio))
        yield [
            Tiering(whose, side, minio, *broker_consume.make_topic(side, 1, size))
            for whose, side, minio in sides
        ]


@contextmanager
def replica_at(home: Path) -> Iterator[Replica]:
    """A stock broker that is compiled fully (C2), MinIO and the node, each of its own."""
    options = (*class_options(kafka_class_data()), "-XX:TieredStopAtLevel=4")
    (home / "minio").mkdir()
    with (
        MinioServer(home / "minio") as minio,
        KafkaBroker(home / "broker", class_options=options) as broker,
    ):
        port = ports_in_a_row(2 + broker.node_id)
        sections: dict[str, dict[str, object]] = {
            "kafka": {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap},
            "topics": {"include": [TOPIC]},
            "stores.main": store_settings(home, minio.store_config),
            "read": {
                "listen": f"127.0.0.1:{port}",
                "connections_max": IDLE + SCANNING + 100,
            },
        }
        with NodeProcess(home / "node", sections) as node:
            yield Replica(broker, node, minio, port)


def log_end(broker: KafkaBroker) -> int:
    """The high watermark."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "end"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    consumer.close()
    return int(end)


def main() -> None:
    """Run with the sizes of the command line."""
    (size, rounds), jars = numbers_and_aiven(__doc__, mib=256, rounds=3)
    with tempfile.TemporaryDirectory() as folder, replica_at(Path(folder)) as replica:
        replica.prepare(size * MIB)
        measures = scans(replica, Path(folder), size * MIB, rounds, jars)
        measures += latency(replica)
        measures += memory(replica)
    write_table(
        "Read replica",
        measures,
        packages=("confluent-kafka",),
        notes=(
            f"MinIO {MINIO_VERSION}",
            f"{size} MiB, segments of {SEGMENT_MIB} MiB",
        ),
    )


if __name__ == "__main__":
    main()
