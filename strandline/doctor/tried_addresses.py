"""Tries to listen on an address, or to connect to one."""

from __future__ import annotations

import asyncio
import errno
import socket

CONNECT_DEADLINE_S = 3.0


def trouble_to_listen(host: str, port: int) -> str | None:
    """The reason why no process can listen on the address now, and what to do; None if one can."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "a different process listens there: stop it, or choose a different port"
        return f"can't be listened on ({error.strerror}): name an address of this machine"
    except UnicodeError:
        return "can't be listened on (no resolver takes this name): name an address of this machine"
    return None


async def trouble_to_connect(address: tuple[str, int]) -> str | None:
    """The reason why no connection can be opened to the address; None if one can."""
    try:
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            _, writer = await asyncio.open_connection(*address)
    except (OSError, ValueError) as error:  # UnicodeError: a name that no resolver takes
        said = getattr(error, "strerror", None) or str(error)
        return f"no connection{f' ({said})' if said else f' within {CONNECT_DEADLINE_S:.0f} s'}"
    writer.transport.abort()
    return None
