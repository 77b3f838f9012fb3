"""The leaders of partitions by their own word, as this node heard it on any connection.

A leader above the tier's lineage may have replaced the tail of the tier. How far its log is the
tier's is asked of it once, and holds while it leads, since a leader cuts nothing off its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from kafka_formats.leader_epoch_checkpoint import Epochs, end_offset_for
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.reading.read_port import BrokerLogEnds, EpochEnd, LeaderEpochs
from rlmm.segment import OFFSET_MAX

PARTITIONS_MAX = 10_000
"""The most partitions whose leader's word is remembered; the ones that were heard of longest ago go
first.
"""
QUESTIONS_MAX = 16
"""The most questions for one answer: as many unclean elections may lie between leader and tier."""

Question = tuple[TopicIdPartition, int, Epochs]
"""A partition, the epoch of its leader, and the tier's lineage."""
Word = TypeVar("Word")


async def agreed_until(
    lineage: Epochs, end_of: Callable[[int], Awaitable[EpochEnd | None]]
) -> int | None:
    """The offset (exclusive) up to which a log of `lineage` and the leader's are one; None: the
    leader can't tell. As a follower finds where to cut its log (KIP-101, KIP-279).
    """
    epoch, until = lineage[-1].epoch, OFFSET_MAX
    for _ in range(QUESTIONS_MAX):
        told = await end_of(epoch)
        if told is None or told.leader_epoch < lineage[0].epoch:
            return None
        until = min(until, told.end_offset)
        if told.leader_epoch == epoch:
            return until
        epoch, end = end_offset_for(lineage, told.leader_epoch, OFFSET_MAX)
        until = min(until, end)
        if epoch == told.leader_epoch:
            return until
    return None


@dataclass(slots=True)
class Leaders:
    """The newest leaders that any connection heard of, one per node."""

    epochs: LeaderEpochs
    _told: dict[TopicIdPartition, BrokerLogEnds] = field(default_factory=dict)
    _agreed: dict[TopicIdPartition, tuple[Question, int]] = field(default_factory=dict)
    _asking: dict[Question, asyncio.Task[int | None]] = field(default_factory=dict)

    def newest(
        self, partition: TopicIdPartition, told: BrokerLogEnds | None
    ) -> BrokerLogEnds | None:
        """The word on a client's connection or, of a newer leader, on another one before. Who leads
        at an older epoch, or does not answer this client, leads no more for all that is known.
        """
        known = self._told.get(partition)
        if known is not None and (told is None or told.leader_epoch < known.leader_epoch):
            return replace(known, is_reachable=False)
        if told is not None and told.is_reachable:
            _keep(self._told, partition, told)
        return told

    def known_until(
        self, partition: TopicIdPartition, lineage: Epochs, leader_epoch: int
    ) -> int | None:
        """`agreed_until` without asking."""
        question, until = self._agreed.get(partition, (None, None))
        return until if question == (partition, leader_epoch, lineage) else None

    async def agreed_until(
        self, partition: TopicIdPartition, lineage: Epochs, leader_epoch: int
    ) -> int | None:
        """The answer of the function `agreed_until`; readers of a partition share one question."""
        known = self.known_until(partition, lineage, leader_epoch)
        if known is not None:
            return known
        question = partition, leader_epoch, lineage
        if question not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask(question))
            task.add_done_callback(lambda _: self._asking.pop(question))
            self._asking[question] = task
        # A reader that leaves takes the answer from no other one.
        return await asyncio.shield(self._asking[question])

    async def _ask(self, question: Question) -> int | None:
        partition, leader_epoch, lineage = question
        end_of = partial(self.epochs.end_of, partition, leader_epoch=leader_epoch)
        until = await agreed_until(lineage, end_of)
        if until is not None:
            _keep(self._agreed, partition, (question, until))
        return until


def _keep(words: dict[TopicIdPartition, Word], partition: TopicIdPartition, word: Word) -> None:
    words.pop(partition, None)
    words[partition] = word
    if len(words) > PARTITIONS_MAX:
        words.pop(next(iter(words)))
