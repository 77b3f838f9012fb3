"""Free loopback ports for servers that must be told their port before they start, and keep it."""

from __future__ import annotations

import socket

from tests.real.toolbox import only_one, tools_dir

LOWEST, BEHIND = 20_000, 32_000
"""Below those that the kernel gives to connections of clients: one of these would take a server's
port before it starts, or while it is stopped.
"""


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody has on 127.0.0.1. All test runs of this machine go round
    together, so that no two of them are given the same one for long.
    """
    found: list[int] = []
    with only_one("next-port"):
        state = tools_dir() / "next-port"
        said = state.read_bytes() if state.exists() else b""
        port = int(said) if said.isdigit() else LOWEST
        if not LOWEST <= port < BEHIND:
            port = LOWEST
        for _ in range(BEHIND - LOWEST):
            if len(found) == count:
                break
            if _is_free(port):
                found.append(port)
            port = port + 1 if port + 1 < BEHIND else LOWEST
        state.write_text(str(port))
    assert len(found) == count, f"{count} free ports between {LOWEST} and {BEHIND}"
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def ports_in_a_row(count: int) -> int:
    """The first of `count` such ports, each one higher than the one before."""
    while True:
        found = free_ports(count)
        if found[-1] - found[0] == count - 1:
            return found[0]
