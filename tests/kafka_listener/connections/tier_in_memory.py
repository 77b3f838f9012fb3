"""A tier for tests: the batches of segment files as a broker left them, kept in memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafka_formats.record_batch import parse_header
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.reading.fetch_target import is_in_log
from kafka_listener.reading.read_port import (
    AbortedFrom,
    BrokerLogEnds,
    EpochEnd,
    FetchAnswer,
    FetchQuery,
    FoundOffset,
    GoToBroker,
    NotAvailable,
    OutOfRange,
    TierEnds,
    TierPart,
)
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import ClientEnd, SendRules, Sent

EARLIEST = -2


@dataclass(frozen=True)
class Batch:
    first: int
    last: int
    raw: bytes


@dataclass(frozen=True)
class Sending:
    """Sends a body to the client as a worker does."""

    raw: bytes

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(client, self.raw)
        return Sent(ClientEnd.TOOK_ALL, len(self.raw))

    async def read(self) -> bytes:
        return self.raw


@dataclass
class TierInMemory:
    """`answers` to offsets are given instead of batches; `asked` are the offsets of each fetch."""

    batches: dict[tuple[str, int], list[Batch]] = field(default_factory=dict)
    answers: dict[int, FetchAnswer] = field(default_factory=dict)
    aborted: tuple[AbortedFrom, ...] = ()
    asked: list[FetchQuery] = field(default_factory=list)
    found: dict[int, FoundOffset] = field(default_factory=dict)
    epochs: dict[int, EpochEnd] = field(default_factory=dict)
    caught_up: bool = True
    goes_on: bool = False

    def take(self, topic: str, partition: int, segments: list[Path]) -> None:
        """Have the batches of these files."""
        kept = self.batches.setdefault((topic, partition), [])
        for segment in segments:
            raw = segment.read_bytes()
            at = 0
            while at < len(raw):
                header = parse_header(raw, at, source=str(segment), position=at)
                end = at + header.size_bytes
                kept.append(Batch(header.base_offset, header.last_offset, raw[at:end]))
                at = end

    def ends(self, partition: TopicIdPartition) -> TierEnds | None:
        kept = self.batches.get((partition.topic, partition.partition))
        return TierEnds(kept[0].first, kept[-1].last + 1, 0) if kept else None

    def is_in_log(
        self, partition: TopicIdPartition, offset: int, broker: BrokerLogEnds | None
    ) -> bool:
        if isinstance(self.answers.get(offset), OutOfRange):
            return False
        return is_in_log(offset, self.ends(partition), None, broker)

    @asynccontextmanager
    async def fetch(self, query: FetchQuery) -> AsyncIterator[FetchAnswer]:
        self.asked.append(query)
        yield self._answer(query)

    def _answer(self, query: FetchQuery) -> FetchAnswer:
        if query.offset in self.answers:
            return self.answers[query.offset]
        kept = self.batches.get((query.partition.topic, query.partition.partition), [])
        if not kept and not self.caught_up:
            return NotAvailable("the view lags")
        found: list[Batch] = []
        size = 0
        for batch in kept:
            if batch.last < query.offset:
                continue
            if found and size + len(batch.raw) > query.bytes_max:
                break
            found.append(batch)
            size += len(batch.raw)
        if not found:
            has_leader = query.broker is not None
            return GoToBroker(query.offset) if has_leader else NotAvailable("nobody knows")
        raw = b"".join(batch.raw for batch in found)
        aborted = self.aborted if query.read_committed else ()
        start, end = kept[0].first, found[-1].last + 1
        return TierPart(len(raw), end, start, aborted, Sending(raw), self.goes_on)

    async def list_offsets(
        self, partition: TopicIdPartition, timestamp: int, broker: BrokerLogEnds | None
    ) -> FoundOffset | None:
        kept = self.batches.get((partition.topic, partition.partition), [])
        if not kept:
            return None
        return self.found.get(timestamp) or (
            FoundOffset(-1, kept[0].first, -1) if timestamp == EARLIEST else None
        )

    def epoch_end(
        self, partition: TopicIdPartition, leader_epoch: int, broker: BrokerLogEnds
    ) -> EpochEnd | None:
        return self.epochs.get(leader_epoch)
