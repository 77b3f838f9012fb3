"""A read in a worker that has its first bytes and waits for the client's connection."""

from __future__ import annotations

import socket

from rlm.data_plane.read_request import SendRules, Sent
from rlm.worker.call import Call
from rlm.worker.messages import End, SentSoFar, call_error


class WorkersWaitingRead:
    def __init__(self, call: Call) -> None:
        self._call = call

    async def send_to(self, client: socket.socket, rules: SendRules) -> Sent:
        self._call.lend(client.fileno(), rules)
        while True:
            message = await self._call.next()
            if isinstance(message, End) and isinstance(message.result, Sent):
                return message.result
            if not isinstance(message, SentSoFar):
                raise call_error(message)
