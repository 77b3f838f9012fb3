"""A connection that a listener of asyncio's own loop accepts in the turn in which it closes.

asyncio 3.11 (mended in later releases) forgets such a one: nobody closes its socket, and a warning
comes up in whatever test runs when it is collected. Here it is closed, so that tests can treat each
socket that is left open as a leak of ours. Nodes run on uvloop, which has nothing of this.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any


def close_late_accepts() -> None:
    """From now on, in this process."""
    accept = BaseSelectorEventLoop._accept_connection2  # type: ignore[attr-defined]  # not in stubs

    async def accept_while_serving(
        loop: BaseSelectorEventLoop,
        protocol_factory: Any,
        connection: socket.socket,
        extra: Any,
        sslcontext: Any = None,
        server: asyncio.Server | None = None,
        *timeouts: float,
    ) -> None:
        if server is not None and not server.is_serving():
            connection.close()
            return
        await accept(loop, protocol_factory, connection, extra, sslcontext, server, *timeouts)

    BaseSelectorEventLoop._accept_connection2 = accept_while_serving  # type: ignore[attr-defined]
