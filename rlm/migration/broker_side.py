"""The Kafka cluster as a switch sees it: which brokers live, and the metadata topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kafka_client import broker_requests
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.broker_view import BrokerView
from rlm.leadership.leadership import NoAnswer
from rlm.migration.newest_leaders import check_newest
from rlm.migration.settings_check import checked_settings
from rlm.migration.switching import DifferenceError
from rlm.migration.topic_checks import PartitionRead
from rlm.migration.topic_reader import TopicReader
from rlm.migration.topic_replay import TopicReplay

LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """See `switching.BrokersPort`. `view`: of this node's own broker."""

    view: BrokerView

    async def live(self) -> Collection[int]:
        """Ids of the brokers that live, by this node's own broker."""
        found = await self.view.ask(broker_requests.describe_cluster)
        if isinstance(found, NoAnswer):
            raise RetryLater(found.reason)
        return list(found.brokers)

    async def open_topic(self) -> ReadInThreads:
        """The metadata topic, each partition of which is read in a thread. DifferenceError: it does
        not keep its records for ever. RetryLater: another broker knows newer leaders of it.
        """
        return await asyncio.to_thread(lambda: asyncio.run(self._opened()))

    async def _opened(self) -> ReadInThreads:
        view = self.view.another()
        try:
            reader = await TopicReader.open(view)
            await check_newest(view, reader.topic)
            settings = await checked_settings(view)
            if not settings.ok:
                raise DifferenceError(f"{settings.name}: {settings.detail}")
            return ReadInThreads(self.view, reader.topic.topic_id, reader.partitions)
        finally:
            await view.close()


@dataclass(frozen=True, slots=True)
class ReadInThreads:
    """The topic. A partition may have millions of records, and a node's event loop no time for
    them: a thread with a loop of its own reads it.
    """

    view: BrokerView
    topic_id: Uuid
    partitions: Sequence[int]

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        """Replay a partition up to its end of now. What `progress` raises ends it, in the thread
        with the next answer of a broker.
        """
        done, over = (0, 0), False

        def told(read: int, of: int) -> None:
            nonlocal done
            done = read, of
            if over:
                raise RetryLater("nobody waits for it any more")

        reading = asyncio.create_task(
            asyncio.to_thread(lambda: asyncio.run(self._read(partition, told)))
        )
        try:
            while not reading.done():
                progress(*done)
                await asyncio.wait({reading}, timeout=LOOK_EVERY_S)
            return reading.result()
        finally:
            over = True

    async def _read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        view = self.view.another()
        try:
            reader = await TopicReader.open(view)
            try:
                return await reader.read(partition, progress)
            finally:
                await reader.close()
        finally:
            await view.close()

    async def close(self) -> None:
        """Nothing is kept open between two partitions."""
