"""An address to listen on, tried."""

from __future__ import annotations

import errno
import socket


def trouble_to_listen(host: str, port: int) -> str | None:
    """The reason why nobody can listen there now, and what to do; None: it can be listened on."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "another process listens there: stop it, or choose another port"
        return f"can't be listened on ({error.strerror}): name an address of this machine"
    except UnicodeError:
        return "can't be listened on (no resolver takes this name): name an address of this machine"
    return None
