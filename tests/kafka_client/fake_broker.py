"""A scripted server for one test: it speaks Kafka's protocol through kio's schemas, on a loop.

    async with fake_broker({MetadataRequest: lambda request: MetadataResponse(...)}) as broker:
        connection = await Connection.open(broker.endpoint(), new_nonce=...)

ApiVersions is answered from `versions` unless the script has an answer of its own.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.schema.api_versions.v2 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.api_versions.v2.response import ApiVersion
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32Timedelta
from kio.static.protocol import RequestPayload, ResponsePayload

from kafka_client.connection import Endpoint

NO_THROTTLE = i32Timedelta.parse(timedelta(0))
VERSIONS = {2: (1, 8), 3: (0, 12), 17: (1, 1), 18: (0, 3), 32: (1, 4), 36: (0, 2)}
_HEAD = struct.Struct(">hhi")


@dataclass(frozen=True)
class RawFrame:
    """Bytes to send as they are, size and all."""

    data: bytes


class HangUp:
    """Close the connection instead of answering."""


class Silence:
    """Never answer."""


Reply = ResponsePayload | RawFrame | HangUp | Silence
Script = Mapping[type[Any], Callable[[Any], Reply]]


@dataclass
class FakeBroker:
    """What a test sees of the server."""

    script: dict[type[Any], Callable[[Any], Reply]]
    versions: dict[int, tuple[int, int]]
    port: int = 0
    connections: int = 0
    asked: list[Any] = field(default_factory=list)
    client_ids: set[str | None] = field(default_factory=set)

    def endpoint(self, **more: Any) -> Endpoint:
        """Where to connect; deadlines are long unless a test shortens them."""
        return Endpoint("127.0.0.1", self.port, **more)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        self.connections += 1
        try:
            while True:
                size = struct.unpack(">i", await reader.readexactly(4))[0]
                correlation_id, request = self._parse(await reader.readexactly(size))
                self.asked.append(request)
                reply = self._reply(request)
                if isinstance(reply, HangUp):
                    return
                if not isinstance(reply, Silence):
                    writer.write(encode_reply(reply, correlation_id))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _parse(self, frame: bytes) -> tuple[int, RequestPayload]:
        api_key, version, correlation_id = _HEAD.unpack_from(frame)
        request_type = load_request_schema(api_key, version)
        header, at = entity_reader(request_type.__header_schema__)(frame, 0)
        self.client_ids.add(header.client_id)
        request, size = entity_reader(request_type)(frame, at)
        assert at + size == len(frame)
        return correlation_id, request

    def _reply(self, request: RequestPayload) -> Reply:
        answer = self.script.get(type(request))
        if answer is not None:
            return answer(request)
        assert isinstance(request, ApiVersionsRequest), f"no script for {request}"
        keys = tuple(
            ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
            for key, (low, high) in self.versions.items()
        )
        return ApiVersionsResponse(
            error_code=ErrorCode.none, api_keys=keys, throttle_time=NO_THROTTLE
        )


def encode_reply(reply: ResponsePayload | RawFrame, correlation_id: int) -> bytes:
    """A whole frame."""
    if isinstance(reply, RawFrame):
        return reply.data
    buffer = io.BytesIO()
    header_type: Any = reply.__header_schema__
    entity_writer(header_type)(buffer, header_type(correlation_id=correlation_id))
    entity_writer(type(reply))(buffer, reply)
    payload = buffer.getvalue()
    return struct.pack(">i", len(payload)) + payload


@asynccontextmanager
async def fake_broker(
    script: Script | None = None, *, versions: Mapping[int, tuple[int, int]] = VERSIONS
) -> AsyncIterator[FakeBroker]:
    """A server on a free port of 127.0.0.1; every connection is closed at the end."""
    broker = FakeBroker(dict(script or {}), dict(versions))
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(broker.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tuple(tasks), return_exceptions=True)
        await server.wait_closed()
