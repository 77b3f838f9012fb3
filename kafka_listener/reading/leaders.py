"""Tracks the newest leader of each partition, from the reports of leaders on any connection.

A leader above the tier's lineage may have replaced the tail of the tier. It is asked once how far
its log equals the tier; the answer holds while it leads, since a leader never truncates its log.
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
"""The most partitions whose leader's report is remembered; those reported longest ago are dropped
first.
"""
QUESTIONS_MAX = 16
"""The most requests for one answer: as many unclean elections may lie between leader and tier."""

Question = tuple[TopicIdPartition, int, Epochs]
"""A partition, the epoch of its leader, and the tier's lineage."""
LeaderReport = TypeVar("LeaderReport")


async def agreed_until(
    lineage: Epochs, end_of: Callable[[int], Awaitable[EpochEnd | None]]
) -> int | None:
    """The offset (exclusive) up to which a log of `lineage` and the leader's log are equal; None:
    the leader can't tell. Followers find where to truncate their log in the same way (KIP-101,
    KIP-279).
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
    """The newest leaders reported on any connection; one object per node."""

    epochs: LeaderEpochs
    _reported: dict[TopicIdPartition, BrokerLogEnds] = field(default_factory=dict)
    _agreed: dict[TopicIdPartition, tuple[Question, int]] = field(default_factory=dict)
    _asking: dict[Question, asyncio.Task[int | None]] = field(default_factory=dict)

    def newest(
        self, partition: TopicIdPartition, reported: BrokerLogEnds | None
    ) -> BrokerLogEnds | None:
        """The report on a client's connection; but if it is None, or an earlier report on any
        connection has a newer leader epoch, that earlier report with `is_reachable=False`: a leader
        of an older epoch, or one that does not answer, may no longer be the leader.
        """
        known = self._reported.get(partition)
        if known is not None and (reported is None or reported.leader_epoch < known.leader_epoch):
            return replace(known, is_reachable=False)
        if reported is not None and reported.is_reachable:
            _keep(self._reported, partition, reported)
        return reported

    def known_until(
        self, partition: TopicIdPartition, lineage: Epochs, leader_epoch: int
    ) -> int | None:
        """The known result of `agreed_until`, without a request."""
        question, until = self._agreed.get(partition, (None, None))
        return until if question == (partition, leader_epoch, lineage) else None

    async def agreed_until(
        self, partition: TopicIdPartition, lineage: Epochs, leader_epoch: int
    ) -> int | None:
        """The result of the function `agreed_until`; the readers of a partition share one
        request.
        """
        known = self.known_until(partition, lineage, leader_epoch)
        if known is not None:
            return known
        question = partition, leader_epoch, lineage
        if question not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask(question))
            task.add_done_callback(lambda _: self._asking.pop(question))
            self._asking[question] = task
        # A reader that disconnects must not cancel the request for the rest.
        return await asyncio.shield(self._asking[question])

    async def _ask(self, question: Question) -> int | None:
        partition, leader_epoch, lineage = question
        end_of = partial(self.epochs.end_of, partition, leader_epoch=leader_epoch)
        until = await agreed_until(lineage, end_of)
        if until is not None:
            _keep(self._agreed, partition, (question, until))
        return until


def _keep(
    reports: dict[TopicIdPartition, LeaderReport], partition: TopicIdPartition, report: LeaderReport
) -> None:
    reports.pop(partition, None)
    reports[partition] = report
    if len(reports) > PARTITIONS_MAX:
        reports.pop(next(iter(reports)))
