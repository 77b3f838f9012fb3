"""Reads the metadata topic's partitions from their leaders, to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka_client.broker_requests import EARLIEST, LATEST
from kafka_client.connection import Connection
from kafka_client.topic_leaders import NO_LEADER, TopicLeaders
from kafka_formats.errors import RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import Record
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.broker_view import BrokerView
from rlm.migration.topic_checks import TOPIC, Gap, PartitionRead
from rlm.migration.topic_records import FETCH_BYTES, RecordsBetween, leaders_of_topic, offset_at
from rlm.migration.topic_replay import TopicReplay

GAPS_TOLD_MAX = 100
Progress = Callable[[int, int], None]
"""A callback with the number of a partition's records that were read, and the most that it has."""


@dataclass(slots=True)
class TopicReader:
    """Reads the metadata topic of a cluster. Connections to its leaders are kept until `close`."""

    view: BrokerView
    topic: TopicLeaders
    _connections: dict[int, Connection] = field(default_factory=dict)

    @classmethod
    async def open(cls, view: BrokerView) -> TopicReader:
        """Ask the broker for the topic's leaders. Raises RetryLater if it does not have the topic,
        or does not answer.
        """
        return cls(view, await leaders_of_topic(view))

    @property
    def partitions(self) -> tuple[int, ...]:
        """The topic's partitions, ascending."""
        return tuple(sorted(self.topic.leaders))

    async def read(self, partition: int, progress: Progress) -> tuple[TopicReplay, PartitionRead]:
        """Replay a partition up to its present end. An error is not raised, but is the `error` of
        the result.
        """
        replay = TopicReplay(f"{TOPIC}-{partition}")
        misplaced: list[str] = []
        reading = _Reading(replay, partition, progress)
        error = None
        try:
            connection = await self._connect(self.topic.leaders[partition])
            await reading.to_end(connection, self.topic.topic_id)
            misplaced = replay.drop_misplaced(partition, len(self.topic.leaders))
        except StrandlineError as found:
            error = str(found)
        return replay, reading.result(error, misplaced)

    async def close(self) -> None:
        """Close the connections."""
        while self._connections:
            await self._connections.popitem()[1].close()

    async def _connect(self, leader: int) -> Connection:
        known = self._connections.pop(leader, None)
        if known is not None and not known.lost:
            self._connections[leader] = known
            return known
        address = self.topic.addresses.get(leader)
        if leader == NO_LEADER or address is None:
            raise RetryLater("it has no leader: start the brokers that have its replicas")
        made = await self.view.connect_to(leader, *address, response_bytes_max=2 * FETCH_BYTES)
        self._connections[leader] = made
        return made


@dataclass(slots=True)
class _Reading:
    """The read of one partition in progress."""

    replay: TopicReplay
    partition: int
    progress: Progress
    start: int = 0
    end: int = 0
    last_record: int = -1
    gaps: list[Gap] = field(default_factory=list)

    async def to_end(self, connection: Connection, topic_id: Uuid) -> None:
        id_ = TopicIdPartition(topic=TOPIC, topic_id=topic_id, partition=self.partition)
        self.start = await offset_at(connection, id_, EARLIEST)
        self.end = await offset_at(connection, id_, LATEST)
        records = RecordsBetween(
            id_, self.replay.source, self.start, self.end, self._take, self._gap
        )
        while records.next_offset < self.end:
            await records.fetch(connection)
            self.progress(records.next_offset - self.start, self.end - self.start)

    def _take(self, record: Record) -> None:
        self.last_record = record.offset
        self.replay.apply(record.offset, record.value)

    def _gap(self, expected: int, found: int) -> None:
        if len(self.gaps) < GAPS_TOLD_MAX:
            self.gaps.append(Gap(expected, found))

    def result(self, error: str | None, misplaced: Sequence[str]) -> PartitionRead:
        return PartitionRead(
            self.partition,
            self.start,
            self.end,
            self.replay.records,
            tuple(self.gaps),
            self.replay.unreadable,
            tuple(self.replay.told_unreadable),
            dict(self.replay.ignored),
            error,
            self.last_record,
            misplaced,
        )
