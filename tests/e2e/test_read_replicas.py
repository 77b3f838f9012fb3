"""Two read replicas on machines of their own: they know each other, and clients know both."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_formats.properties import parse_partition_metadata
from kafka_listener.virtual_nodes import Replica, VirtualNodes, port_of, virtual_id
from rsm_backends.store_config import StoreConfig
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.test_sidecar_beside_kafka import TOPIC, TOPIC_CONFIG, Scene, node_settings
from tests.e2e.writer import Writer
from tests.real.kafka import KafkaBroker, run_tool
from tests.real.kafka_clients import consume_all
from tests.real.ports import ports_in_a_row
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PARTITIONS = 6
BROKER_ID = 1
DEADLINE_S = 90.0
"""A consumer has hung that gets no new record for so long. A whole scan has no deadline: how fast
it is depends on the machine.
"""
ROUNDS = 2
"""Of the writer, however long copies take: several segments for each partition."""
KILL_AFTER = 50
"""Records; a client holds a few hundred that it has fetched ahead."""
A, B = 11, 12

Places = set[tuple[int, int]]
"""(partition, offset) of records."""


@dataclass
class Stage:
    """A broker that has dropped all but its active segments, a node beside it, two replicas."""

    quorum: NodeQuorum
    ports: dict[int, int]
    expected: Places

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[each]}" for each in (A, B))

    def node(self, number: int) -> NodeProcess:
        return self.quorum.nodes[number]

    def told(self, number: int) -> set[int]:
        """The nodes that a client is told of by one replica."""
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports[number]}"})
        return set(client.list_topics(timeout=30).brokers)

    def wait_until_told(self, number: int, replicas: set[int]) -> None:
        wanted = {virtual_id(each, BROKER_ID) for each in replicas}
        self.quorum.wait_until(
            lambda: self.told(number) == wanted, f"replica {number} to tell of {replicas}"
        )

    def tier_bytes(self, number: int) -> float:
        """Bytes of the tier that a replica has sent."""
        return self.figure(number, 'strandline_read_bytes_total{source="tier"}')

    def figure(self, number: int, name: str) -> float:
        """A metric of a replica's node."""
        text = PLAIN.get(f"{self.node(number).url}/metrics").text
        (line,) = (each for each in text.splitlines() if each.startswith(name))
        return float(line.rsplit(" ", 1)[1])


def create_spread_topic(broker: KafkaBroker) -> None:
    """A topic whose id gives each replica a share: once in 32 times one serves all six."""
    while True:
        broker.create_topic(TOPIC, partitions=PARTITIONS, config=TOPIC_CONFIG)
        path = broker.log_dir / f"{TOPIC}-0" / "partition.metadata"
        broker.wait_until(path.exists, f"a replica of {TOPIC}")
        topic_id = parse_partition_metadata(path.read_bytes(), source=str(path))
        if serving(topic_id) == {A, B}:
            return
        broker.delete_topic(TOPIC)


def serving(topic_id: bytes) -> set[int]:
    """The replicas that clients of some partition are sent to."""
    both = tuple(Replica(each, "127.0.0.1", 9092) for each in (A, B))
    nodes = VirtualNodes(both[0], both)
    replica_of = {virtual_id(each, BROKER_ID): each for each in (A, B)}
    first = (nodes.serving(topic_id, each, BROKER_ID)[0] for each in range(PARTITIONS))
    return {replica_of[each.node_id] for each in first}


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, minio_store_config: StoreConfig
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("replicas")
    store = replace(minio_store_config, prefix="e2e/replicas/")
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "broker"))
        create_spread_topic(broker)
        settings = node_settings(folder, broker, store)
        kafka = settings.pop("kafka")
        quorum = stack.enter_context(
            NodeQuorum(folder, broker.cluster_id, settings, {"1": kafka}, founders=(1,))
        )
        scene = Scene(broker, quorum.nodes[1], store, PARTITIONS)
        Writer(broker.bootstrap, TOPIC, PARTITIONS).write_rounds(ROUNDS)
        scene.wait_until_all_is_copied()
        expected = {
            (number, record.offset)
            for number in range(PARTITIONS)
            for record in consume_all(broker.bootstrap, TOPIC, number, isolation="read_committed")
        }
        scene.drop_locally([scene.keep(number) for number in range(PARTITIONS)])
        ports = {each: ports_in_a_row(2 + BROKER_ID) for each in (A, B)}
        for number, zone in ((A, "a"), (B, "b")):
            read = {
                "listen": f"127.0.0.1:{ports[number]}",
                "zone": zone,
            }
            quorum.follow(
                number, kafka={"log_dirs": [], "bootstrap": [broker.bootstrap]}, read=read
            )
        found = Stage(quorum, ports, expected)
        found.wait_until_told(A, {A, B})
        found.wait_until_told(B, {A, B})
        yield found


def consumer(bootstrap: str, **config: object) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
        "session.timeout.ms": 6_000,
        "log_level": 0,
    }
    return Consumer(settings | {name.replace("_", "."): value for name, value in config.items()})


class Waited:
    """Fails once nothing new has come for `DEADLINE_S`."""

    def __init__(self) -> None:
        self.came()

    def came(self) -> None:
        self._end = time.monotonic() + DEADLINE_S

    def check(self, missing: Places) -> None:
        if time.monotonic() > self._end:
            by_partition = Counter(number for number, _ in missing)
            pytest.fail(f"nothing came for {DEADLINE_S} s, and these are missing: {by_partition}")


def read_all(bootstrap: str, expected: Places, **config: object) -> None:
    """Read every record from offset 0 on, each once."""
    missing, waited = set(expected), Waited()
    client = consumer(bootstrap, **config)
    try:
        client.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while missing:
            message = client.poll(1)
            if message is None:
                waited.check(missing)
                continue
            assert message.error() is None, message.error()
            place = message.partition() or 0, message.offset() or 0
            assert place in missing, f"{place} came twice, or is no record"
            missing.remove(place)
            waited.came()
    finally:
        client.close()


def test_clients_are_told_of_both_and_partitions_are_spread_over_them(stage: Stage) -> None:
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{stage.ports[A]}"})
    told = client.list_topics(topic=TOPIC, timeout=30)
    assert {(each.id, each.port) for each in told.brokers.values()} == {
        (virtual_id(number, BROKER_ID), port_of(stage.ports[number], BROKER_ID))
        for number in (A, B)
    }
    leaders = [each.leader for each in told.topics[TOPIC].partitions.values()]
    assert set(leaders) == set(told.brokers)
    other = AdminClient({"bootstrap.servers": f"127.0.0.1:{stage.ports[B]}"})
    again = other.list_topics(topic=TOPIC, timeout=30)
    assert [each.leader for each in again.topics[TOPIC].partitions.values()] == leaders


def doctor(stage: Stage, number: int) -> str:
    """Its words about the read listener of one replica."""
    said = invoke("doctor", "--config", stage.node(number).config, "--json")
    name = f"read listener 127.0.0.1:{stage.ports[number]}"
    return " ".join(
        each["detail"] for each in json.loads(said.stdout) if each["check"].startswith(name)
    )


def test_doctor_connects_as_a_client_does(stage: Stage) -> None:
    assert doctor(stage, A) == "answers, as do all 2 nodes of its metadata"


def test_both_serve_their_share_of_a_scan(stage: Stage) -> None:
    before = {each: stage.tier_bytes(each) for each in (A, B)}
    read_all(stage.bootstrap, stage.expected)
    assert all(stage.tier_bytes(each) > before[each] for each in (A, B))


@pytest.mark.parametrize(("rack", "near", "far"), [("a", A, B), ("b", B, A)])
def test_a_consumer_reads_from_the_replica_in_its_zone(
    stage: Stage, rack: str, near: int, far: int
) -> None:
    before = {each: stage.tier_bytes(each) for each in (A, B)}
    read_all(stage.bootstrap, stage.expected, client_rack=rack)
    assert stage.tier_bytes(far) == before[far]
    assert stage.tier_bytes(near) > before[near]


def test_kafkas_own_consumer_reads_from_the_replica_in_its_zone(stage: Stage) -> None:
    before = {each: stage.tier_bytes(each) for each in (A, B)}
    out = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", stage.bootstrap, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(len(stage.expected)), "--timeout-ms", "60000"),
        *("--isolation-level", "read_committed", "--command-property", "client.rack=b"),
        *("--formatter-property", "print.value=false", "--formatter-property", "print.offset=true"),
        *("--formatter-property", "print.partition=true"),
    )
    assert len({line for line in out.splitlines() if "Offset:" in line}) == len(stage.expected)
    assert stage.tier_bytes(A) == before[A]
    assert stage.tier_bytes(B) > before[B]


def places(messages: list[Message]) -> Places:
    """Those of the records among them."""
    return {(each.partition() or 0, each.offset() or 0) for each in messages if not each.error()}


def test_a_group_reads_on_while_a_replica_is_killed_and_comes_back(stage: Stage) -> None:
    members = [
        consumer(stage.bootstrap, group_id="pair", auto_offset_reset="earliest",
                 max_partition_fetch_bytes=20_000, queued_max_messages_kbytes=64,
                 fetch_queue_backoff_ms=50)
        for _ in range(2)
    ]  # fmt: skip
    missing, waited, killed = set(stage.expected), Waited(), False
    try:
        for each in members:
            each.subscribe([TOPIC])
        while missing:
            waited.check(missing)
            for each in members:
                # All that it has: one by one, each record would wait for the member without any.
                for place in places(each.consume(1_000, 0.05)):
                    assert place in stage.expected
                    if place in missing:
                        missing.remove(place)
                        waited.came()
            if not killed and len(stage.expected) - len(missing) > KILL_AFTER:
                stage.node(B).kill()
                killed = True
    finally:
        for each in members:
            each.close()
    assert killed
    stage.wait_until_told(A, {A})
    assert stage.figure(A, 'strandline_read_replicas{state="told"}') == 1
    assert stage.figure(A, 'strandline_read_replicas{state="silent"}') == 1
    assert doctor(stage, B) == "each of 1 brokers has a port 2 ports free to listen on"
    stage.node(B).start()
    stage.wait_until_told(A, {A, B})
    stage.wait_until_told(B, {A, B})
    read_all(stage.bootstrap, stage.expected)
