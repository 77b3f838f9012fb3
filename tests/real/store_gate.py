"""A gate before a store's HTTP: open, slow, read-only (writes are refused as by a policy), or shut.

The signature of a request covers the host it was sent to, not the one that serves it: clients are
given the gate's address, and the store behind accepts what they signed.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

HEAD_BYTES_MAX = 1 << 16
CHUNK_BYTES = 1 << 16
END_DEADLINE_S = 20
SLOW_S = 0.7
"""More than the half second that a broker gives its readers for a fetch."""
_READS = frozenset({"GET", "HEAD"})
_REFUSAL = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>'
    b"<Message>the bucket is read-only</Message></Error>"
)


class Passing(Enum):
    """What the gate lets through."""

    ALL = "all"
    SLOWLY = "slowly"
    READS = "reads"
    NOTHING = "nothing"


class StoreGate:
    """Listens on a free loopback port while it is entered; `passing` may be set at any time."""

    def __init__(self, host: str, port: int) -> None:
        self.passing = Passing.ALL
        self.refused = 0
        self.port = 0
        self._behind = (host, port)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="store gate")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(END_DEADLINE_S), "the gate did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_DEADLINE_S)
        assert not self._thread.is_alive(), "the gate hangs"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        open_now: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            open_now.add(task)
            try:
                await self._connection(reader, writer)
            finally:
                open_now.discard(task)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        await server.wait_closed()

    async def _connection(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if self.passing is Passing.NOTHING:
            return
        with suppress(OSError, asyncio.IncompleteReadError):
            store, onward = await asyncio.open_connection(*self._behind)
            answers = asyncio.ensure_future(_pump(store, back))
            try:
                while await self._request(client, onward, back):
                    pass
            finally:
                answers.cancel()
                onward.close()
                await asyncio.gather(answers, return_exceptions=True)

    async def _request(
        self,
        client: asyncio.StreamReader,
        onward: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> bool:
        """Pass one request on; False when the connection ends here."""
        head = await client.readuntil(b"\r\n\r\n")
        length = _content_length(head)
        if self.passing is Passing.NOTHING:
            return False
        if self.passing is Passing.READS and head.split(b" ", 1)[0].decode() not in _READS:
            self.refused += 1
            await _refuse(client, back, head, length)
            return False
        if self.passing is Passing.SLOWLY:
            await asyncio.sleep(SLOW_S)
        onward.write(head)
        while length:
            data = await client.read(min(length, CHUNK_BYTES))
            if not data:
                return False
            length -= len(data)
            onward.write(data)
            await onward.drain()
        return True


async def _refuse(
    client: asyncio.StreamReader, back: asyncio.StreamWriter, head: bytes, length: int
) -> None:
    """403; the body is read first unless the client waits for leave to send it."""
    if b"expect: 100-continue" not in head.lower():
        while length:
            data = await client.read(min(length, CHUNK_BYTES))
            if not data:
                return
            length -= len(data)
    lines = (
        "HTTP/1.1 403 Forbidden",
        "Content-Type: application/xml",
        f"Content-Length: {len(_REFUSAL)}",
        "Connection: close",
    )
    back.write("\r\n".join((*lines, "", "")).encode() + _REFUSAL)
    await back.drain()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        sink.write(data)
        await sink.drain()
    sink.close()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":", 1)[1])
    return 0
