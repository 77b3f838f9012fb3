"""Reads the metadata topic from its leaders, one partition after the other, to its end.

Batches are read as they lie, transaction markers and aborted ones included: Kafka's own manager
reads uncommitted records, and markers show that an offset is no gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_client import broker_requests
from kafka_client.broker_requests import EARLIEST, LATEST, READ_UNCOMMITTED, BrokerError
from kafka_client.connection import Connection
from kafka_client.replica_answers import Batches
from kafka_client.replica_requests import fetch_batches
from kafka_client.topic_leaders import NO_LEADER, TopicLeaders, topic_leaders
from kafka_formats.batch_scan import BATCH_BYTES_MAX
from kafka_formats.errors import CorruptData, RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import (
    BatchHeader,
    check_crc,
    iter_records,
    parse_header,
    whole_batches,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.broker_view import BrokerView
from rlm.leadership.leadership import NoAnswer
from rlm.migration.topic_checks import TOPIC, Gap, PartitionRead
from rlm.migration.topic_replay import TopicReplay

FETCH_BYTES = 8 << 20
BATCHES_AT_ONCE = 10_000
GAPS_TOLD_MAX = 100
Progress = Callable[[int, int], None]
"""Called with the records read of a partition and those it has, at most."""


@dataclass(slots=True)
class TopicReader:
    """The metadata topic of a cluster. Connections to its leaders are kept until `close`."""

    view: BrokerView
    topic: TopicLeaders
    _connections: dict[int, Connection] = field(default_factory=dict)

    @classmethod
    async def open(cls, view: BrokerView) -> TopicReader:
        """Ask the broker for the topic's leaders. RetryLater: it has no such topic, or does not
        answer.
        """

        async def ask(connection: Connection) -> TopicLeaders | BrokerError:
            return await topic_leaders(connection, TOPIC)

        found = await view.ask(ask)
        if isinstance(found, NoAnswer):
            raise RetryLater(found.reason)
        if isinstance(found, BrokerError):
            raise RetryLater(
                f"the broker answered {found.name} for {TOPIC}: a broker makes it when tiered "
                "storage is on; give the node's user Describe and Read on it"
            )
        return cls(view, found)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The topic's partitions, ascending."""
        return tuple(sorted(self.topic.leaders))

    async def read(self, partition: int, progress: Progress) -> tuple[TopicReplay, PartitionRead]:
        """Replay a partition up to the end that it has now. What keeps it from being read is the
        `error` of the result.
        """
        replay = TopicReplay(f"{TOPIC}-{partition}")
        reading = _Reading(replay, partition, progress)
        error = None
        try:
            connection = await self._connect(self.topic.leaders[partition])
            await reading.to_end(connection, self.topic.topic_id)
        except StrandlineError as found:
            error = str(found)
        return replay, reading.result(error)

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
            raise RetryLater("it has no leader: start the brokers that hold its replicas")
        made = await self.view.connect_to(leader, *address, response_bytes_max=2 * FETCH_BYTES)
        self._connections[leader] = made
        return made


@dataclass(slots=True)
class _Reading:
    """One partition while it is read."""

    replay: TopicReplay
    partition: int
    progress: Progress
    start: int = 0
    end: int = 0
    gaps: list[Gap] = field(default_factory=list)
    _next: int = 0

    async def to_end(self, connection: Connection, topic_id: Uuid) -> None:
        self.start = self._next = await self._offset(connection, EARLIEST)
        self.end = await self._offset(connection, LATEST)
        id_ = TopicIdPartition(topic=TOPIC, topic_id=topic_id, partition=self.partition)
        while self._next < self.end:
            before = self._next
            found = await fetch_batches(connection, id_, before, bytes_max=FETCH_BYTES)
            if not isinstance(found, Batches):
                name = found.name if isinstance(found, BrokerError) else "offset_out_of_range"
                raise RetryLater(f"its leader answered {name} at offset {before}")
            self._take(memoryview(found.data))
            if self._next == before:
                raise RetryLater(
                    f"its leader gives nothing at offset {before}, below its end {self.end}: it "
                    f"knows {found.high_watermark} as committed"
                )
            self.progress(self._next - self.start, self.end - self.start)

    def _take(self, data: memoryview) -> None:
        at, source = 0, self.replay.source
        while at < len(data) and self._next < self.end:
            headers, end = whole_batches(
                data, at, batch_bytes_max=BATCH_BYTES_MAX, count_max=BATCHES_AT_ONCE
            )
            for fields in headers:
                header = BatchHeader._make(fields)
                self._batch(header, data, at)
                at += header.size_bytes
            if not headers:
                self._first_is_cut(data, end, source)
                return

    def _first_is_cut(self, data: memoryview, at: int, source: str) -> None:
        """Pass if the answer ends inside this batch. CorruptData: it is damaged."""
        header = parse_header(data, at, source=source, position=at)
        if header.size_bytes <= len(data) - at:
            check_crc(data, at, header, source=source, position=at)
            raise CorruptData("a batch that can't be read", source=source, position=at)

    def _batch(self, header: BatchHeader, data: memoryview, at: int) -> None:
        if header.last_offset < self._next or header.base_offset >= self.end:
            return
        self._gap(header.base_offset)
        if header.is_control:
            self._next = header.last_offset + 1
            return
        for record in iter_records(data, at, source=self.replay.source, position=at):
            if record.offset >= self._next:
                self._gap(record.offset)
                self.replay.apply(record.offset, record.value)
                self._next = record.offset + 1
        self._gap(header.last_offset + 1)

    def _gap(self, found: int) -> None:
        """Note that `found` follows what was read."""
        if found > self._next:
            if len(self.gaps) < GAPS_TOLD_MAX:
                self.gaps.append(Gap(self._next, found))
            self._next = found

    async def _offset(self, connection: Connection, timestamp: int) -> int:
        name = (TOPIC, self.partition)
        answers = await broker_requests.list_offsets(
            connection, [name], timestamp=timestamp, isolation_level=READ_UNCOMMITTED
        )
        answer = answers.get(name)
        if answer is None or isinstance(answer, BrokerError):
            why = "nothing" if answer is None else answer.name
            raise RetryLater(f"its leader answered {why} when asked for its offsets")
        return answer.offset

    def result(self, error: str | None) -> PartitionRead:
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
        )
