"""Reads the metadata topic's leaders, and the records of a partition from its leader.

Transaction markers and aborted records are read, too: Kafka's own metadata manager reads
uncommitted records, and markers show that their offsets are no gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_client import broker_requests
from kafka_client.broker_requests import READ_UNCOMMITTED, BrokerError
from kafka_client.connection import Connection
from kafka_client.replica_answers import Batches
from kafka_client.replica_requests import fetch_batches
from kafka_client.topic_leaders import TopicLeaders, topic_leaders
from kafka_formats.batch_scan import BATCH_BYTES_MAX
from kafka_formats.errors import CorruptData, RetryLater
from kafka_formats.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    check_crc,
    iter_records,
    parse_header,
    whole_batches,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.broker_view import BrokerView
from rlm.leadership.leadership import NoAnswer
from rlm.migration.topic_checks import TOPIC

FETCH_BYTES = 8 << 20
BATCHES_AT_ONCE = 10_000


async def leaders_of_topic(view: BrokerView) -> TopicLeaders:
    """The leaders of the metadata topic. Raises RetryLater if the broker does not have the topic,
    or does not answer.
    """

    async def ask(connection: Connection) -> TopicLeaders | BrokerError:
        return await topic_leaders(connection, TOPIC)

    found = await view.ask(ask)
    if isinstance(found, NoAnswer):
        raise RetryLater(found.reason)
    if isinstance(found, BrokerError):
        raise RetryLater(
            f"the broker answered {found.name} for {TOPIC}, which brokers create if tiered storage "
            "is enabled: enable it, and give the node's user Describe and Read on the topic"
        )
    return found


async def offset_at(connection: Connection, partition: TopicIdPartition, timestamp: int) -> int:
    """The partition's EARLIEST or LATEST offset, from its leader. Raises RetryLater if that does
    not answer with one.
    """
    name = (partition.topic, partition.partition)
    answers = await broker_requests.list_offsets(
        connection, [name], timestamp=timestamp, isolation_level=READ_UNCOMMITTED
    )
    answer = answers.get(name)
    if answer is None or isinstance(answer, BrokerError):
        why = "nothing" if answer is None else answer.name
        raise RetryLater(f"its leader answered {why} when asked for its offsets")
    return answer.offset


def ignore_gap(_expected: int, _found: int) -> None:
    """An `on_gap` for readers that do not count gaps."""


@dataclass(slots=True)
class RecordsBetween:
    """Reads the records of [`next_offset`, `end`) and passes each to `take`, in order. `gap` is
    called with (expected, found) if an offset does not follow the one before. `source` names the
    partition in messages.
    """

    partition: TopicIdPartition
    source: str
    next_offset: int
    end: int
    take: Callable[[Record], None]
    gap: Callable[[int, int], None] = ignore_gap

    async def fetch(self, connection: Connection, bytes_max: int = FETCH_BYTES) -> None:
        """Do one Fetch; call this until `next_offset` is `end`. Raises RetryLater if the leader
        returns no records, CorruptData for a damaged batch.
        """
        before = self.next_offset
        found = await fetch_batches(connection, self.partition, before, bytes_max=bytes_max)
        if not isinstance(found, Batches):
            name = found.name if isinstance(found, BrokerError) else "offset_out_of_range"
            raise RetryLater(f"its leader answered {name} at offset {before}")
        self._take(memoryview(found.data))
        if self.next_offset == before:
            raise RetryLater(
                f"its leader returns no records at offset {before}, below its end {self.end}: its "
                f"high watermark is {found.high_watermark}"
            )

    def _take(self, data: memoryview) -> None:
        at = 0
        while at < len(data) and self.next_offset < self.end:
            headers, end = whole_batches(
                data, at, batch_bytes_max=BATCH_BYTES_MAX, count_max=BATCHES_AT_ONCE
            )
            for fields in headers:
                header = BatchHeader._make(fields)
                self._batch(header, data, at)
                at += header.size_bytes
            if not headers:
                self._first_is_cut(data, end)
                return

    def _first_is_cut(self, data: memoryview, at: int) -> None:
        """Do nothing if the answer ends inside this batch: a broker ends its answer at the
        requested bytes. Raises CorruptData if the batch is damaged.
        """
        if len(data) - at < HEADER_BYTES:
            return
        header = parse_header(data, at, source=self.source, position=at)
        if header.size_bytes <= len(data) - at:
            check_crc(data, at, header, source=self.source, position=at)
            raise CorruptData("the batch can't be read", source=self.source, position=at)

    def _batch(self, header: BatchHeader, data: memoryview, at: int) -> None:
        if header.last_offset < self.next_offset or header.base_offset >= self.end:
            return
        self._pass(header.base_offset)
        if header.is_control:
            self.next_offset = header.last_offset + 1
            return
        for record in iter_records(data, at, source=self.source, position=at):
            if record.offset >= self.next_offset:
                self._pass(record.offset)
                self.take(record)
                self.next_offset = record.offset + 1
        self._pass(header.last_offset + 1)

    def _pass(self, found: int) -> None:
        """Report a gap if `found`, the next offset, is not the expected one."""
        if found > self.next_offset:
            self.gap(self.next_offset, found)
            self.next_offset = found
