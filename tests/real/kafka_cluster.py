"""Three stock brokers (KRaft, each a controller as well): replicas, leaders that move, faults.

    with KafkaCluster(tmp_path / "kafka") as cluster:
        cluster.create_topic("orders", partitions=3, config={...})
        cluster.move_leader("orders", 0, to=2)

One broker of three may be down: the other two are a majority of the controllers and, with
`min.insync.replicas=2`, of the replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kio.schema.alter_partition_reassignments.v0 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kio.schema.alter_partition_reassignments.v0.request import (
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from kafka_client.connection import Connection, Endpoint
from tests.real.kafka import KAFKA_VERSION, REQUEST_DEADLINE_S, KafkaBroker

BROKERS = (1, 2, 3)
HEAP_MB = 256
_THREE_BROKERS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "5000",
    "broker.session.timeout.ms": "4000",
}


class KafkaCluster:
    """`home/broker-N` is the home of broker N. As a context manager: formatted and started.
    `listeners`, `format_options` and `version` are each broker's.
    """

    def __init__(
        self,
        home: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        version: str = KAFKA_VERSION,
    ) -> None:
        self.brokers = {
            number: KafkaBroker(
                home / f"broker-{number}",
                node_id=number,
                overrides={**_THREE_BROKERS, **(overrides or {})},
                listeners=listeners,
                format_options=format_options,
                version=version,
                heap_mb=HEAP_MB,
            )
            for number in BROKERS
        }
        self._formatted = False
        voters = ",".join(
            f"{number}@{broker.address('CONTROLLER')}" for number, broker in self.brokers.items()
        )
        for broker in self.brokers.values():
            broker.override({"controller.quorum.voters": voters})

    @property
    def bootstrap(self) -> str:
        """All brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id."""
        return self.brokers[1].cluster_id

    @property
    def running(self) -> dict[int, KafkaBroker]:
        """Those that run."""
        return {number: each for number, each in self.brokers.items() if each.running}

    def format(self) -> None:
        """Before it is entered, where something else needs the log directories first."""
        for broker in self.brokers.values():
            broker.format()
        self._formatted = True

    def __enter__(self) -> Self:
        if not self._formatted:
            self.format()
        try:
            for broker in self.brokers.values():
                broker.spawn()
            for broker in self.brokers.values():
                broker.wait_until_ready()
            # librdkafka gives up what it asked of an address that a later answer does not name.
            for broker in self.brokers.values():
                broker.wait_until(partial(_knows_all, broker), "a broker that knows all")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes without ceremony."""
        for broker in self.brokers.values():
            broker.close()

    def admin(self) -> AdminClient:
        """A stock admin client. Keep it until its futures are done: they end with it."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, three replicas a partition unless told which; wait for its leaders."""
        assignment = [list(each) for each in replicas or self._spread(partitions)]
        new = NewTopic(
            topic, len(assignment), replica_assignment=assignment, config=dict(config or {})
        )
        admin = self.admin()
        admin.create_topics([new])[topic].result(REQUEST_DEADLINE_S)
        self.wait_for_replicas(topic, len(assignment))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until no running broker has a live directory of it."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(REQUEST_DEADLINE_S)
        for broker in self.running.values():
            broker.wait_until(
                lambda: not any(broker.log_dir.glob(f"{topic}-[0-9]")),  # noqa: B023
                f"broker {broker.node_id} to delete {topic}",
            )

    def add_partitions(self, topic: str, total: int) -> None:
        """Let the topic have `total` partitions."""
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(REQUEST_DEADLINE_S)
        self.wait_for_replicas(topic, total)

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """The topic's partitions as a broker that answers knows them."""
        described = self.admin().list_topics(topic, timeout=REQUEST_DEADLINE_S)
        return dict(described.topics[topic].partitions)

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads; -1 without one."""
        found = self.partitions(topic).get(partition)
        return -1 if found is None else int(found.leader)

    def isr(self, topic: str, partition: int) -> set[int]:
        """The replicas in sync; none while no broker answers."""
        with suppress(KafkaException):
            return {int(each) for each in self.partitions(topic)[partition].isrs}
        return set()

    def wait_for_replicas(self, topic: str, partitions: int) -> None:
        """Until every one of `partitions` partitions has a leader and all replicas in sync."""

        def all_in_sync() -> bool:
            with suppress(KafkaException):
                found = self.partitions(topic).values()
                return len(found) == partitions and all(
                    each.leader >= 0 and set(each.isrs) == set(each.replicas) for each in found
                )
            return False

        self._first().wait_until(all_in_sync, f"all replicas of {topic} in sync")

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move the partition to `replicas`, the first preferred; wait until it is done."""
        asyncio.run(_reassign(self._first().bootstrap, topic, partition, replicas))

        def moved() -> bool:
            found = self.partitions(topic)[partition]
            return list(found.replicas) == list(replicas) and set(found.isrs) == set(replicas)

        self._first().wait_until(moved, f"{topic}-{partition} on {replicas}")

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Let broker `to`, a replica in sync, lead the partition; returns once it does."""
        present = [int(each) for each in self.partitions(topic)[partition].replicas]
        others = [each for each in present if each != to]
        self.reassign(topic, partition, [to, *others])
        self.elect(topic, partition, ElectionType.PREFERRED)
        self._first().wait_until(
            lambda: self.leader(topic, partition) == to, f"broker {to} to lead {topic}-{partition}"
        )

    def elect(self, topic: str, partition: int, kind: ElectionType) -> None:
        """Ask the controller for an election; an election that is not needed is none."""
        admin = self.admin()
        with suppress(KafkaException):
            admin.elect_leaders(kind, [TopicPartition(topic, partition)]).result(REQUEST_DEADLINE_S)

    def leader_log(self, topic: str, partition: int) -> list[Path]:
        """The leader's `.log` files, oldest first; the last one is active."""
        return self.brokers[self.leader(topic, partition)].segment_files(topic, partition)

    def _first(self) -> KafkaBroker:
        return next(iter(self.running.values()))

    @staticmethod
    def _spread(partitions: int) -> Iterable[Sequence[int]]:
        return [[BROKERS[(first + each) % 3] for each in range(3)] for first in range(partitions)]


def _knows_all(broker: KafkaBroker) -> bool:
    with suppress(KafkaException):
        return set(BROKERS) <= set(broker.admin().list_topics(timeout=2).brokers)
    return False


async def _reassign(address: str, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """librdkafka's admin client has no such request; any broker forwards it."""
    host, port = address.split(":")
    connection = await Connection.open(Endpoint(host, int(port)), new_nonce=str)
    try:
        moved = ReassignablePartition(
            partition_index=i32(partition),
            replicas=tuple(BrokerId(each) for each in replicas),
        )
        answer = await connection.ask(
            AlterPartitionReassignmentsRequest(
                topics=(ReassignableTopic(name=TopicName(topic), partitions=(moved,)),)
            ),
            AlterPartitionReassignmentsResponse,
        )
    finally:
        await connection.close()
    codes = {answer.error_code} | {
        each.error_code for topic_ in answer.responses for each in topic_.partitions
    }
    assert codes == {ErrorCode.none}, answer
