"""A read in a worker that has its first bytes and waits for the client to send them to."""

from __future__ import annotations

import socket
from typing import Protocol

from rlm.client_send import SendRules, Sent
from rlm.worker_call import Call
from rlm.worker_messages import End, SentSoFar, call_error


class HeldRead(Protocol):
    """What is wrong from the start was raised before; the first bytes are verified."""

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        """Send all to `client`, to which nobody else writes meanwhile; it remains the caller's.

        Raises what ends a read; RetryLater also when the worker died.
        """
        ...


class WorkersHeldRead:
    """In a worker process."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        """See `HeldRead`."""
        self._call.lend(client.fileno(), rules)
        while True:
            message = await self._call.next()
            if isinstance(message, End) and isinstance(message.result, Sent):
                return message.result
            if not isinstance(message, SentSoFar):
                raise call_error(message)
