"""TCP proxies between nodes: every road from one node to another can be blocked, either way."""

from __future__ import annotations

import asyncio
from contextlib import suppress

HOST = "127.0.0.1"
CHUNK_BYTES = 65536


class Gate:
    """What passes in one direction of one road."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def block(self) -> None:
        """What is sent meanwhile arrives later, or never, if the connection ends before."""
        self._open.clear()

    def unblock(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        await self._open.wait()


class Road:
    """From one node to another: its requests on the way there, the answers on the way back."""

    def __init__(self, destination_port: int) -> None:
        self.there = Gate()
        self.back = Gate()
        self.port = 0
        self._destination_port = destination_port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def sever(self) -> None:
        """End every connection that is open now."""
        for task in self._connections:
            task.cancel()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.sever()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writers = [writer]
        try:
            await self.there.passed()
            answers, onward = await asyncio.open_connection(HOST, self._destination_port)
            writers.append(onward)
            pumps = (
                asyncio.create_task(_pump(reader, onward, self.there)),
                asyncio.create_task(_pump(answers, writer, self.back)),
            )
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (ConnectionError, asyncio.CancelledError):
            pass  # refused, lost, or severed: both ends see a closed connection
        finally:
            self._connections.discard(task)
            for each in writers:
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: Gate) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            await gate.passed()
            writer.write(data)
            await writer.drain()
