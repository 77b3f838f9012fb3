"""A connection accepted in the turn in which its listener closes is closed, not forgotten."""

from __future__ import annotations

import asyncio
import socket


async def test_a_connection_that_came_too_late_is_closed() -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        await asyncio.sleep(0)  # the loop sees it
        await asyncio.sleep(0)  # and accepts it, in a task that has not begun
        server.close()
        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
