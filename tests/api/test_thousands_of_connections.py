"""Thousands of connections at once, each of them served: what one costs is bounded."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

from bench.node_process import resident_mib
from tests.api.test_pressure import LIMITS, _opened, until
from tests.api.test_server import get, running

CONNECTIONS = 2_500
CONNECTION_KIB_MAX = 64
PATIENT = replace(LIMITS, connections_max=CONNECTIONS, header_deadline_s=120, idle_deadline_s=120)


async def ask(client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, get())
    assert (await loop.sock_recv(client, 4_096)).startswith(b"HTTP/1.1 200 ")


async def test_thousands_of_connections_are_served_again_and_again() -> None:
    async with running(PATIENT) as (_, server):
        before_mib = resident_mib()
        clients = await _opened(server, CONNECTIONS)
        try:
            for _ in range(2):
                for client in clients:
                    await ask(client)
                assert server.connections == CONNECTIONS
            grown_mib = resident_mib() - before_mib
            assert grown_mib * 1_024 < CONNECTIONS * CONNECTION_KIB_MAX
        finally:
            for client in clients:
                client.close()
        await until(lambda: not server.connections)
