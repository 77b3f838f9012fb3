"""A client of the tier's answers to the listener, and the leader that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka_formats.leader_epoch_checkpoint import Epochs, end_offset_for, truncate_from_start
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.reading.fetch_target import Prefer
from kafka_listener.reading.read_port import (
    AbortedFrom,
    BrokerLogEnds,
    EpochEnd,
    FetchAnswer,
    FetchQuery,
    TierPart,
    TierReads,
)
from kafka_listener.reading.tier_reading import TierReading
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

MAX = 10**9
LEADER = BrokerLogEnds(
    leader_epoch=0, local_log_start_offset=20, last_stable_offset=35, high_watermark=35
)


@dataclass
class Leader:
    """The leader's word about transactions; None: it does not answer."""

    aborted: tuple[AbortedFrom, ...] | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def aborted_at(
        self, partition: TopicIdPartition, offset: int, leader_epoch: int
    ) -> tuple[AbortedFrom, ...] | None:
        self.asked.append((offset, leader_epoch))
        return self.aborted


@dataclass
class Log:
    """The leader's log by its epochs, from `start` on; None: the leader does not answer."""

    epochs: Epochs | None = None
    start: int = 0
    end: int = 0
    asked: int = 0

    async def end_of(
        self, partition: TopicIdPartition, epoch: int, leader_epoch: int
    ) -> EpochEnd | None:
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.epochs is None or leader_epoch != self.epochs[-1].epoch:
            return None
        end = EpochEnd(
            *end_offset_for(truncate_from_start(self.epochs, self.start), epoch, self.end)
        )
        return end if self.start < end.end_offset else None


@dataclass
class Client:
    """Asks a node about one partition."""

    node: Node
    partition: TopicIdPartition
    prefer: Prefer = Prefer.TIER
    leader: Leader = field(default_factory=Leader)
    log: Log = field(default_factory=Log)
    committed: bool = False

    def __post_init__(self) -> None:
        breathe = partial(asyncio.sleep, 0)
        self.reading = TierReading(
            self.node.parts.reads, self.leader, self.log, self.prefer, breathe, MAX,
            self.node.parts.settings.why_disabled,
        )  # fmt: skip
        self.port: TierReads = self.reading

    async def fetch(
        self, offset: int, broker: BrokerLogEnds | None = LEADER, bytes_max: int = MAX
    ) -> tuple[FetchAnswer, bytes]:
        query = FetchQuery(self.partition, offset, bytes_max, self.committed, broker)
        async with self.port.fetch(query) as answer:
            if not isinstance(answer, TierPart):
                return answer, b""
            data = await answer.batches.read()
            assert len(data) == answer.size_bytes
            return answer, data

    async def scan(
        self, offset: int, broker: BrokerLogEnds | None = LEADER, bytes_max: int = MAX
    ) -> tuple[bytes, FetchAnswer]:
        """All bytes from one answer after the other, and the first answer without any."""
        found = b""
        while True:
            answer, data = await self.fetch(offset, broker, bytes_max)
            if not isinstance(answer, TierPart):
                return found, answer
            assert answer.next_offset > offset
            found += data
            offset = answer.next_offset


def with_node(tmp_path: Path, orders: KafkaLog, check: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            await check(node)

    run_virtually(main)


def stored(log: KafkaLog, *bases: int) -> bytes:
    return b"".join(log.log_bytes(base) for base in bases)
