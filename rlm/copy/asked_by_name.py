"""Asks the broker about a partition by its topic's name, and checks that it is still the same
topic.

Another topic of that name may have been made since the directory was looked at. If the directory is
still the same topic's after the answer, it was so when the broker gave it. Of a disk that is not
seen from here the broker's id of that name tells the same.
"""

from __future__ import annotations

import asyncio

from rlm.copy.scanner import LEFT_OUT, BrokerPort
from rlm.copy.told_partitions import wrong_ids
from rlm.leadership.leadership import BrokerWord, Leads, LocalLogStart, NoAnswer, NotLeading
from rlm.local_log.log_dir import LocalPartition
from rlm.local_log.replica_directory import why_another


async def word_of(broker: BrokerPort, local: LocalPartition) -> BrokerWord:
    """The broker's word on its leadership of this replica now."""
    name = (local.partition.topic, local.partition.partition)
    word = (await broker.leadership([name])).get(name, LEFT_OUT)
    if isinstance(word, Leads) and (why := await _why_another(broker, local)) is not None:
        return NoAnswer(why)
    return word


async def log_start_of(
    broker: BrokerPort, local: LocalPartition
) -> LocalLogStart | NotLeading | NoAnswer:
    """The first offset on its disk, if it leads this replica."""
    name = (local.partition.topic, local.partition.partition)
    start = (await broker.local_log_start([name])).get(name, LEFT_OUT)
    if isinstance(start, LocalLogStart) and (why := await _why_another(broker, local)) is not None:
        return NoAnswer(why)
    return start


async def _why_another(broker: BrokerPort, local: LocalPartition) -> str | None:
    if not local.is_seen:
        tip = local.partition
        wrong = wrong_ids([tip], await broker.topic_ids([tip.topic]))
        return wrong[tip].reason if wrong else None
    return await asyncio.to_thread(why_another, local.directory, local.partition.topic_id)
