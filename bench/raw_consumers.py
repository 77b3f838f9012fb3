"""Consumers by the hundred, as bare connections: one that waits at the end, one that scans.

Real clients have threads of their own, and a thousand of them would measure those.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from kafka_formats.record_batch import parse_header
from kafka_listener.protocol import codec
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import Head

VERSION = 12
MIB = 1 << 20
IDLE_WAIT_MS = 20_000


@dataclass(slots=True)
class RawConsumer:
    """Fetches one partition over a connection of its own."""

    topic: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    waits_s: list[float]
    total: int = 0

    @classmethod
    async def open(cls, port: int, topic: str) -> RawConsumer:
        """Connect to a broker, or to what stands for it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(topic, reader, writer, [])

    async def fetch(self, offset: int, *, wait_ms: int, bytes_max: int = MIB) -> Any:
        """The partition's part of the answer."""
        wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": bytes_max}
        body = {
            "replica_id": -1,
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 50 * MIB,
            "session_epoch": -1,
            "topics": [{"topic": self.topic, "partitions": [wanted]}],
        }
        head = Head(Api.FETCH, VERSION, 1)
        begun = time.perf_counter()
        self.writer.write(codec.encode_request(head, "bench", body))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(size)
        self.waits_s.append(time.perf_counter() - begun)
        self.total += size
        return codec.decode_response(head, frame)["responses"][0]["partitions"][0]

    async def idle(self, offset: int) -> None:
        """Wait at the end of the log until cancelled."""
        while True:
            await self.fetch(offset, wait_ms=IDLE_WAIT_MS)

    async def scan(self, offset: int, end: int) -> None:
        """Read up to `end` (exclusive), again and again until cancelled."""
        at = offset
        while True:
            answer = await self.fetch(at, wait_ms=500)
            at = max(at, _end_of(answer["records"] or b""))
            if at >= end:
                at = 0


def _end_of(records: bytes) -> int:
    at, end = 0, 0
    while at < len(records):
        header = parse_header(records, at, source="a Fetch answer", position=at)
        at, end = at + header.size_bytes, header.last_offset + 1
    return end
