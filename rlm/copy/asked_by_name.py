"""Asks the broker about a partition by its topic's name, and checks that it is still the same
topic.

A new topic of that name may have been made since the directory was scanned. If the directory still
belongs to the same topic after the answer, it did when the broker gave it. For a disk that this
node does not see, the broker's topic id for the name is compared instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rlm.copy.scanner import LEFT_OUT, BrokerPort, TopicPartition
from rlm.copy.told_partitions import wrong_ids
from rlm.leadership.leadership import BrokerWord, LocalLogStart, NoAnswer, NotLeading
from rlm.leadership.unseen_disk import EpochAt
from rlm.local_log.log_dir import LocalPartition
from rlm.local_log.replica_directory import why_another

Found = TypeVar("Found")


async def word_of(broker: BrokerPort, local: LocalPartition) -> BrokerWord:
    """The broker's answer about its leadership of this replica now."""
    return await _ask(broker, local, broker.leadership)


async def log_start_of(
    broker: BrokerPort, local: LocalPartition
) -> LocalLogStart | NotLeading | NoAnswer:
    """The first offset on the broker's disk, if it leads this replica."""
    return await _ask(broker, local, broker.local_log_start)


async def tiered_log_start_of(
    broker: BrokerPort, local: LocalPartition
) -> EpochAt | NotLeading | NoAnswer:
    """The log start of the broker, which may lie in the tier, if it leads this replica."""
    return await _ask(broker, local, broker.log_start)


async def highest_tiered_of(
    broker: BrokerPort, local: LocalPartition
) -> int | NotLeading | NoAnswer:
    """The highest offset that the broker considers copied, if it leads this replica; -1: none."""
    return await _ask(broker, local, broker.highest_tiered)


async def _ask(
    broker: BrokerPort,
    local: LocalPartition,
    ask: Callable[
        [Sequence[TopicPartition]], Awaitable[dict[TopicPartition, Found | NotLeading | NoAnswer]]
    ],
) -> Found | NotLeading | NoAnswer:
    name = (local.partition.topic, local.partition.partition)
    said = (await ask([name])).get(name, LEFT_OUT)
    if isinstance(said, NotLeading | NoAnswer):
        return said
    why = await _why_another(broker, local)
    return said if why is None else NoAnswer(why)


async def _why_another(broker: BrokerPort, local: LocalPartition) -> str | None:
    if not local.is_seen:
        tip = local.partition
        wrong = wrong_ids([tip], await broker.topic_ids([tip.topic]))
        return wrong[tip].reason if wrong else None
    return await asyncio.to_thread(why_another, local.directory, local.partition.topic_id)
