"""The metadata topic for the shadow's writer: `ShadowTopic` over connections to its brokers.

A partition is read and written over the same connection. A deposed leader that does not know it has
an older end, but its appends also fail, since it can't replicate them; the session ends with the
first lost connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_client import broker_requests
from kafka_client.broker_requests import EARLIEST, LATEST, READ_UNCOMMITTED, BrokerError
from kafka_client.connection import Connection
from kafka_client.topic_leaders import TopicLeaders
from kafka_client.transaction_requests import produce
from kafka_client.transactional_producer import ProducerLimits, TransactionalProducer
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import Record, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.broker_view import BrokerView
from rlm.migration.newest_leaders import check_newest
from rlm.migration.shadow_plan import (
    FILLER_HEADER,
    HEADER,
    FoundRecord,
    ShadowRow,
    header_value,
    metadata_offset_in,
)
from rlm.migration.topic_checks import TOPIC
from rlm.migration.topic_records import FETCH_BYTES, RecordsBetween, leaders_of_topic
from rlmm.records.segment_records import encode_segment_record
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata

PARTITIONS_PER_REQUEST_MAX = 2_000
READ_BYTES = 64 * 1024
"""Limit of the bytes of one Fetch, since they are decoded on the node's event loop."""


_FILLER = encode_segment_record(
    RemotePartitionDeleteMetadata(
        TopicIdPartition("strandline-filler", Uuid(b"strandline-fill."), 0),
        -1,
        0,
        PartitionDeleteState.DELETE_PARTITION_FINISHED,
    )
)
"""A filler: the end of the deletion of a partition that no broker has; Kafka's own manager ignores
it.
"""


def transactional_id(cluster_id: str) -> str:
    """The transactional id with which the writers of a Strandline cluster fence each other."""
    return f"strandline-shadow-{cluster_id}"


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """`ShadowTopic` over the node's own broker, which knows the other brokers."""

    view: BrokerView
    transactional_id: str
    sleep: Callable[[float], Awaitable[None]]
    now_ms: Callable[[], int]
    limits: ProducerLimits = field(default_factory=ProducerLimits)

    async def open(self) -> KafkaSession:
        """Fence all earlier writers. Raises Refused if the node's user lacks a permission,
        RetryLater if a broker knows newer leaders than the node's own broker.
        """
        first = await leaders_of_topic(self.view)
        if not first.addresses:
            raise RetryLater("this node's broker knows no live broker")
        own = self.view.node_id
        node_id = own if own in first.addresses else min(first.addresses)
        connection = await self.view.connect_to(node_id, *first.addresses[node_id])
        try:
            producer = await TransactionalProducer.open(
                connection,
                self.transactional_id,
                connect=self._connect,
                sleep=self.sleep,
                limits=self.limits,
            )
        finally:
            await connection.close()
        try:
            # Ask again after fencing: the partitions are read from these leaders.
            leaders = await leaders_of_topic(self.view)
            await check_newest(self.view, leaders, of_all=False)
            return KafkaSession(producer, leaders, self.now_ms)
        except BaseException:
            await producer.close()
            raise

    async def _connect(self, node_id: int, host: str, port: int) -> Connection:
        return await self.view.connect_to(node_id, host, port, response_bytes_max=FETCH_BYTES)


@dataclass(slots=True)
class KafkaSession:
    """`TopicSession` over connections to the leaders."""

    producer: TransactionalProducer
    leaders: TopicLeaders
    now_ms: Callable[[], int]
    _unsettled: set[int] | None = None

    @property
    def topic_id(self) -> Uuid:
        return self.leaders.topic_id

    @property
    def partitions(self) -> int:
        return len(self.leaders.leaders)

    async def extents(self) -> Mapping[int, tuple[int, int]]:
        by_leader: dict[int, list[int]] = {}
        for partition, leader in self.leaders.leaders.items():
            if leader in self.leaders.addresses:
                by_leader.setdefault(leader, []).append(partition)
        found: dict[int, tuple[int, int]] = {}
        for leader, partitions in sorted(by_leader.items()):
            try:
                connection = await self.producer.leader(TOPIC, self.leaders, leader)
            except RetryLater:
                if self.producer.has_connected(leader):
                    raise
                continue  # its partitions count as leaderless
            starts = await _offsets(connection, partitions, EARLIEST)
            ends = await _offsets(connection, partitions, LATEST)
            found |= {each: (starts[each], ends[each]) for each in partitions}
        if self._unsettled is None:  # an earlier writer may have left a marker in any partition
            self._unsettled = {each for each, (_, end) in found.items() if end > 0}
        return found

    async def read(self, partition: int, start: int, end: int) -> tuple[Sequence[FoundRecord], int]:
        found: list[FoundRecord] = []
        last = start - 1

        def take(record: Record) -> None:
            nonlocal last
            last = record.offset
            if any(key == FILLER_HEADER for key, _ in record.headers):
                return
            offset = metadata_offset_in(record.headers)
            found.append(FoundRecord(record.offset, offset, record.value))

        id_ = TopicIdPartition(TOPIC, self.topic_id, partition)
        records = RecordsBetween(id_, f"{TOPIC}-{partition}", start, end, take)
        leader = self.leaders.leaders[partition]
        connection = await self.producer.leader(TOPIC, self.leaders, leader)
        await records.fetch(connection, READ_BYTES)
        if records.next_offset == end and self._unsettled is not None:
            if last == end - 1:
                self._unsettled.discard(partition)
            else:
                self._unsettled.add(partition)
        return found, records.next_offset

    async def write(self, rows: Mapping[int, Sequence[ShadowRow]]) -> None:
        # The present time, as any producer uses: a broker may refuse older times.
        now_ms = self.now_ms()
        await self.producer.write(
            TOPIC,
            self.leaders,
            {
                partition: [
                    Record(
                        number, now_ms, None, row.value,
                        ((HEADER, header_value(row.offset)),),
                    )
                    for number, row in enumerate(some)
                ]
                for partition, some in rows.items()
            },
        )  # fmt: skip

    async def settle(self) -> bool:
        unsettled, self._unsettled = self._unsettled or set(), set()
        by_leader: dict[int, dict[tuple[str, int], bytes]] = {}
        for partition in sorted(unsettled):
            record = Record(0, self.now_ms(), None, _FILLER, ((FILLER_HEADER, b""),))
            leader = self.leaders.leaders[partition]
            by_leader.setdefault(leader, {})[TOPIC, partition] = encode_batch(
                [record], base_offset=0
            )
        for leader, batches in by_leader.items():
            connection = await self.producer.leader(TOPIC, self.leaders, leader)
            await produce(
                connection, None, batches, timeout_s=self.producer.limits.produce_timeout_s
            )
        return bool(unsettled)

    async def close(self) -> None:
        await self.producer.close()


async def _offsets(
    connection: Connection, partitions: Sequence[int], timestamp: int
) -> dict[int, int]:
    found: dict[int, int] = {}
    for first in range(0, len(partitions), PARTITIONS_PER_REQUEST_MAX):
        names = [(TOPIC, each) for each in partitions[first : first + PARTITIONS_PER_REQUEST_MAX]]
        answers = await broker_requests.list_offsets(
            connection, names, timestamp=timestamp, isolation_level=READ_UNCOMMITTED
        )
        for name in names:
            answer = answers.get(name)
            if answer is None or isinstance(answer, BrokerError):
                word = "nothing" if answer is None else answer.name
                raise RetryLater(
                    f"{connection.name} answered {word} for the offsets of {TOPIC}-{name[1]}"
                )
            found[name[1]] = answer.offset
    return found
