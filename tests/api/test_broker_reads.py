"""Bytes that a broker reads over a real connection, of a store that hangs: the node answers within
its own deadline, or the plug-in's breaker refuses all of the broker's reads for a second.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from api.http.direct_answer import DIRECT_BYTES_MIN
from api.routes import broker
from api.server import serve
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.read_request import ClientEnd, SendRules, Sent, WaitingRead
from rlm.delegated import wire
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.wire import MEDIA_TYPE
from rlmm.segment import RemoteLogSegmentMetadata
from sim.tier import plugin_bodies
from tests.api.fakes import app_over, make_node
from tests.rlm.planner_facts import segment_row

SIZE = 2 * DIRECT_BYTES_MIN
DEADLINE_S = 10.0
ROW = replace(segment_row(1, 0, 9), size_bytes=SIZE)


@dataclass
class Reads:
    """Stands for the segments of the tier. `opens`: the store's first bytes come."""

    opens: bool
    rules: list[SendRules] = field(default_factory=list)

    @property
    def reads(self) -> Reads:
        return self

    async def check_size(self, row: RemoteLogSegmentMetadata, _: RemoteLogSegmentMetadata) -> int:
        return row.size_bytes

    def waiting_log(
        self, _id: Uuid, _start: int, _end: int
    ) -> AbstractAsyncContextManager[WaitingRead]:
        return self._waiting()

    @asynccontextmanager
    async def _waiting(self) -> AsyncIterator[WaitingRead]:
        if not self.opens:
            await asyncio.Event().wait()
        yield self

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        self.rules.append(rules)
        return Sent(ClientEnd.GONE, 0)


@dataclass
class Calls:
    """Stands for the node's answers to the plug-in."""

    reads: Reads

    def segment_to_read(self, asked: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        return asked


async def fetched(reads: Reads) -> bytes:
    """The head of the answer to a fetch of the whole segment."""
    calls = cast("BrokerCalls", cast("Any", Calls(reads)))
    context = replace(make_node().context, broker=calls)
    server = await serve(app_over(context), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = plugin_bodies.fetch(wire.Fetch(ROW, 0, SIZE))
    head = (
        "POST /v1/broker/fetch HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        "Strandline-Broker-Protocol: 1",
    )
    try:
        writer.write("\r\n".join((*head, "", "")).encode() + body)
        async with asyncio.timeout(DEADLINE_S):
            return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()
        await server.close()


async def test_a_store_that_does_not_answer_is_told_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "CHUNK_DEADLINE_S", 0.05)
    head = await fetched(Reads(opens=False))
    assert b"strandline-kind: retry_later\r\n" in head.lower()


async def test_a_store_that_hangs_in_the_middle_has_the_same_deadline() -> None:
    reads = Reads(opens=True)
    assert (await fetched(reads)).startswith(b"HTTP/1.1 200")
    (rules,) = reads.rules
    assert rules.store_deadline_s == broker.CHUNK_DEADLINE_S
    assert rules.grace_s == make_node().context.limits.chunk_deadline_s  # of the client, as ever
