"""A stock Kafka broker (KRaft, combined mode, one node) as a process of its own.

    with KafkaBroker(tmp_path / "broker") as broker:
        broker.create_topic("orders", partitions=2, config={"internal.segment.bytes": "16384"})

`internal.segment.bytes` is how Kafka 4 makes segments below 1 MiB. Producers and consumers stand in
`tests.real.kafka_clients`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import MetaProperties, encode_meta_properties
from tests.real.class_data import QUIET, class_data, class_options
from tests.real.kafka_clients import NewRecord, consume_all, produce
from tests.real.maven import fetch_jars, require_java
from tests.real.ports import free_ports

KAFKA_VERSION = "4.3.0"
START_DEADLINE_S = 90
STOP_DEADLINE_S = 60
REQUEST_DEADLINE_S = 30
TOOL_DEADLINE_S = 120
HEAP_MB = 512
WARNINGS = "-Dorg.apache.logging.log4j.level=WARN"
JAVA_OPTIONS = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# A small broker for one test: one partition per internal topic, no waiting before the first
# local deletion, offset checkpoints every second.
_SMALL_BROKER = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "65536",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "file.delete.delay.ms": "1000",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "background.threads": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # An idle cluster writes a record to its own log each time: a third of what it costs.
    "metadata.max.idle.interval.ms": "5000",
}


META_PROPERTIES = "meta.properties"
_formatted: dict[tuple[str, bool, tuple[str, ...]], dict[Path, bytes]] = {}
"""The other files of a format, by version, the options, and whether it is of a controller."""


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with a stock Kafka's jars, broker and tools."""
    return fetch_jars(
        f"kafka-{version}",
        (
            f"org.apache.kafka:kafka_2.13:{version}",
            f"org.apache.kafka:kafka-storage:{version}",
            f"org.apache.kafka:kafka-tools:{version}",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
        ),
    )


@cache
def kafka_class_data(version: str = KAFKA_VERSION) -> Path:
    """The archive of a stock Kafka's classes."""
    jars = kafka_jars(version)
    return class_data(jars.name, jars.parent, jars, lambda option: _train(version, option))


def _train(version: str, option: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder), version=version, class_options=QUIET)
        broker.format()
        broker.class_options = (option,)
        broker.start()
        try:
            broker.create_topic("training")
            produce(broker.bootstrap, "training", 0, [NewRecord(b"value")])
            consume_all(broker.bootstrap, "training", 0)
            broker.stop()
        finally:
            broker.close()


def run_tool(
    main_class: str,
    *arguments: str,
    version: str = KAFKA_VERSION,
    class_options: Sequence[str] | None = None,
) -> str:
    """What a stock Kafka command line tool prints; a failure raises with its output."""
    command = tool_command(main_class, *arguments, version=version, class_options=class_options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"{main_class} exited {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def tool_command(
    main_class: str,
    *arguments: str,
    version: str = KAFKA_VERSION,
    class_options: Sequence[str] | None = None,
) -> list[str]:
    """The command that runs a stock Kafka command line tool."""
    return [*_java(version, class_options), main_class, *arguments]


def _java(version: str, classes: Sequence[str] | None, heap_mb: int = HEAP_MB) -> list[str]:
    if classes is None:
        classes = class_options(kafka_class_data(version))
    jars = f"{kafka_jars(version)}/*"
    return [require_java(), f"-Xmx{heap_mb}m", *JAVA_OPTIONS, *classes, "-cp", jars]


class KafkaBroker:
    """One broker under `home`: `home/data` is its log directory, `home/server.log` its output.

    `listeners` adds listeners by name and security protocol (`{"SCRAM": "SASL_PLAINTEXT"}`);
    `format_options` go to `kafka-storage format` as they are. With `controller`, this is only a
    broker, of that one's cluster. `class_options` of its JVM take the place of `kafka_class_data`.
    """

    def __init__(
        self,
        home: Path,
        *,
        node_id: int = 1,
        cluster_id: str = "c3RyYW5kbGluZS10ZXN0Mg",
        listeners: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        controller: KafkaBroker | None = None,
        version: str = KAFKA_VERSION,
        heap_mb: int = HEAP_MB,
        class_options: Sequence[str] | None = None,
    ) -> None:
        self.home = home
        self.class_options = class_options
        self._heap_mb = heap_mb
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.version = version
        self.log_dir = home / "data"
        self._protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(listeners or {})}
        self._ports = dict(zip(self._protocols, free_ports(len(self._protocols)), strict=True))
        self._overrides = dict(overrides or {})
        self._format_options = tuple(format_options)
        self._controller = self if controller is None else controller
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The plain-text listener, `host:port`."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """`host:port` of one listener."""
        return f"127.0.0.1:{self._ports[listener]}"

    def format(self) -> None:
        """Write server.properties and format the log directory. Kafka's tool does so the first
        time in a process: what it writes for the next broker is the same but for the ids.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        alike = self.version, self._controller is self, self._format_options
        if alike not in _formatted:
            self._format_by_tool()
            made = [path for path in self.log_dir.rglob("*") if path.is_file()]
            _formatted[alike] = {
                path.relative_to(self.log_dir): path.read_bytes()
                for path in made
                if path.name != META_PROPERTIES
            }
            return
        self.log_dir.mkdir()
        for name, data in _formatted[alike].items():
            (self.log_dir / name).parent.mkdir(exist_ok=True)  # 4.4 formats the metadata log, too
            (self.log_dir / name).write_bytes(data)
        meta = MetaProperties(1, self.cluster_id, self.node_id, Uuid(os.urandom(16)))
        (self.log_dir / META_PROPERTIES).write_bytes(encode_meta_properties(meta))

    def _format_by_tool(self) -> None:
        properties = str(self.home / "server.properties")
        run_tool(
            "kafka.tools.StorageTool",
            *("format", "-t", self.cluster_id, "-c", properties),
            *self._format_options,
            version=self.version,
            class_options=self.class_options,
        )

    def override(self, overrides: Mapping[str, str]) -> None:
        """Set properties for the format and the starts from now on."""
        self._overrides.update(overrides)

    def start(self, *, overrides: Mapping[str, str] | None = None) -> None:
        """Start the process and wait until it answers; `overrides` stay for later starts."""
        self.override(overrides or {})
        self.spawn()
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def spawn(self) -> None:
        """Start the process and return at once: alone, a broker of several does not answer."""
        assert self._process is None, "the broker runs already"
        self._write_properties()
        java = _java(self.version, self.class_options, self._heap_mb)
        with (self.home / "server.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*java, WARNINGS, "kafka.Kafka", str(self.home / "server.properties")],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LOG_DIR": str(self.home)},
            )

    @property
    def running(self) -> bool:
        """Whether it was started and neither stopped nor killed since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The process id of its JVM."""
        return self._running().pid

    def stop(self) -> None:
        """A clean stop: SIGTERM, and wait for the end."""
        process, self._process = self._running(), None
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        finally:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """SIGKILL: no clean shutdown marker, no final checkpoints."""
        process, self._process = self._running(), None
        process.kill()
        process.wait()

    def restart(self, *, overrides: Mapping[str, str] | None = None) -> None:
        """A clean stop and a start on the same ports."""
        self.stop()
        self.start(overrides=overrides)

    def close(self) -> None:
        """End the process, if it still runs, without ceremony."""
        if self._process is not None:
            self.kill()

    def __enter__(self) -> Self:
        self.format()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def admin(self) -> AdminClient:
        """A stock admin client. Keep it until its futures are done: they end with it."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with one replica and wait until its partitions have a leader."""
        new = NewTopic(topic, partitions, replication_factor=1, config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([new])[topic].result(REQUEST_DEADLINE_S)
        self.wait_until(lambda: self._has_leaders(topic, partitions), f"leaders of {topic}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(REQUEST_DEADLINE_S)

    def alter_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Set some of a topic's configs, the others stay."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(REQUEST_DEADLINE_S)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Kafka's DeleteRecords: the log starts at `before_offset` afterwards."""
        target = TopicPartition(topic, partition, before_offset)
        admin = self.admin()
        admin.delete_records([target])[target].result(REQUEST_DEADLINE_S)

    def segment_files(self, topic: str, partition: int) -> list[Path]:
        """The partition's `.log` files, oldest first; the last one is active."""
        return sorted((self.log_dir / f"{topic}-{partition}").glob("*.log"))

    def wait_until(
        self, holds: Callable[[], bool], what: str, *, deadline_s: float = START_DEADLINE_S
    ) -> None:
        """Look again and again until `holds()`, at most `deadline_s`."""
        end = time.monotonic() + deadline_s
        while not holds():
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"the broker died: {self._last_output()}")
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {deadline_s} s. {self._last_output()}")
            time.sleep(0.1)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker is not running"
        return self._process

    def _write_properties(self) -> None:
        controller = self._controller
        roles = "broker,controller" if controller is self else "broker"
        names = [name for name in self._ports if name != "CONTROLLER" or controller is self]
        properties = {
            "process.roles": roles,
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{controller.node_id}@{controller.address('CONTROLLER')}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in names),
            "advertised.listeners": ",".join(
                f"{name}://{self.address(name)}" for name in names if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in self._protocols.items()
            ),
            "log.dirs": str(self.log_dir),
            **_SMALL_BROKER,
            **self._overrides,
        }
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.home / "server.properties").write_text(text)

    def wait_until_ready(self) -> None:
        """It answers, and every partition has a leader."""
        self.wait_until(self._answers, "the broker to answer")

    def _answers(self) -> bool:
        try:
            metadata = self.admin().list_topics(timeout=2)
        except KafkaException:
            return False
        return self.node_id in metadata.brokers and all(
            partition.leader >= 0
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
        )

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        found = self.admin().list_topics(topic, timeout=5).topics[topic].partitions
        return len(found) == partitions and all(
            partition.leader >= 0 for partition in found.values()
        )

    def _last_output(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")[-4_000:]
