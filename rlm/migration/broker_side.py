"""The Kafka cluster for a switch: the live brokers, and the metadata topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_client import broker_requests
from kafka_client.broker_requests import ClusterDescription
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.broker_view import BrokerView
from rlm.leadership.leadership import NoAnswer
from rlm.migration.newest_leaders import check_newest
from rlm.migration.settings_check import checked_settings
from rlm.migration.switching import DifferenceError
from rlm.migration.topic_checks import TOPIC, PartitionRead
from rlm.migration.topic_reader import TopicReader
from rlm.migration.topic_replay import TopicReplay

LOOK_EVERY_S = 0.25
LIVE_DEADLINE_S = 2.0
OPEN_DEADLINE_S = 5.0
SILENT = f"this node's broker has not answered for {LIVE_DEADLINE_S:g} s"
UNTOLD = (
    f"the leaders of the metadata topic are not known after {OPEN_DEADLINE_S:g} s: a broker that "
    "counts as live does not answer"
)


@dataclass(slots=True)
class BrokerSide:
    """See `switching.BrokersPort`. `view` is the view of this node's own broker."""

    view: BrokerView
    _known: dict[int, tuple[str, int]] = field(default_factory=dict, init=False)
    """The last address of each broker that was live at any time since this process began."""
    _asking: asyncio.Task[ClusterDescription | NoAnswer] | None = field(default=None, init=False)
    _opening: asyncio.Task[ReadInThreads] | None = field(default=None, init=False)

    async def live(self) -> Collection[int]:
        """The ids of the live brokers, by this node's own broker. Raises RetryLater if that can't
        be asked, or does not answer within LIVE_DEADLINE_S; a late answer is not used.
        """
        await _ended(self._asking, LIVE_DEADLINE_S, SILENT)
        self._asking = asyncio.create_task(self.view.ask(broker_requests.describe_cluster))
        await _ended(self._asking, LIVE_DEADLINE_S, SILENT)
        found = self._asking.result()
        if isinstance(found, NoAnswer):
            raise RetryLater(found.reason)
        self._known.update(found.brokers)
        return list(found.brokers)

    async def open_topic(self) -> ReadInThreads:
        """The metadata topic, whose partitions are read in threads. Raises DifferenceError if the
        topic does not keep its records for ever; RetryLater if a different broker knows newer
        leaders of it, or if its leaders are not known within OPEN_DEADLINE_S.
        """
        await _ended(self._opening, OPEN_DEADLINE_S, UNTOLD)
        known = dict(self._known)
        self._opening = asyncio.create_task(
            asyncio.to_thread(lambda: asyncio.run(self._opened(known)))
        )
        await _ended(self._opening, OPEN_DEADLINE_S, UNTOLD)
        return self._opening.result()

    async def _opened(self, known: Mapping[int, tuple[str, int]]) -> ReadInThreads:
        view = self.view.another()
        try:
            reader = await TopicReader.open(view)
            await check_newest(view, reader.topic, gone=known)
            settings = await checked_settings(view)
            if not settings.ok:
                raise DifferenceError(f"{settings.name}: {settings.detail}")
            return ReadInThreads(self.view, reader.topic.topic_id, reader.partitions)
        finally:
            await view.close()


async def _ended(task: asyncio.Task[Any] | None, deadline_s: float, late: str) -> None:
    """Wait for the end of a task, if there is one. Raises RetryLater(`late`) if it has not ended
    after `deadline_s`. The caller gets the task's result or error from the task.
    """
    if task is None:
        return
    await asyncio.wait({task}, timeout=deadline_s)
    if not task.done():
        raise RetryLater(late)
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class ReadInThreads:
    """The topic. A partition may have millions of records, which would block the node's event loop:
    so it is read in a thread with a loop of its own.
    """

    view: BrokerView
    topic_id: Uuid
    partitions: Sequence[int]

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        """Replay a partition up to its present end. An exception of `progress` ends the read; the
        thread ends with the next answer of a broker. Raises RetryLater if the topic was recreated
        or got more partitions.
        """
        done, over = (0, 0), False

        def told(read: int, of: int) -> None:
            nonlocal done
            done = read, of
            if over:
                raise RetryLater("the read was given up")

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
            if (reader.topic.topic_id, reader.partitions) != (self.topic_id, self.partitions):
                raise RetryLater(f"{TOPIC} was recreated or widened while it was read")
            try:
                return await reader.read(partition, progress)
            finally:
                await reader.close()
        finally:
            await view.close()

    async def close(self) -> None:
        """Do nothing: no connection is kept between two partitions."""
