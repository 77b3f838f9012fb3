"""A worker's read that has verified its first bytes and waits for the client's connection."""

from __future__ import annotations

import socket

from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import BatchesFound, SendRules, Sent
from rlm.worker.call import Call
from rlm.worker.messages import Data, End, SentSoFar, call_error


class WorkersWaitingRead:
    def __init__(self, call: Call) -> None:
        self._call = call

    async def send_to(
        self, client: socket.socket, rules: SendRules, further: FurtherRequests | None = None
    ) -> Sent:
        self._call.lend(client.fileno(), rules, further)
        while True:
            message = await self._call.next()
            if isinstance(message, End) and isinstance(message.result, Sent):
                return message.result
            if not isinstance(message, SentSoFar):
                raise call_error(message)


class WorkersBatches(WorkersWaitingRead):
    """Batches that a worker holds, with their description."""

    def __init__(self, call: Call, found: BatchesFound) -> None:
        super().__init__(call)
        self.found = found

    async def read(self) -> bytes:
        """The bytes, through this process."""
        self._call.send_here()
        pieces: list[bytes] = []
        while isinstance(message := await self._call.next(), Data):
            pieces.append(message.data)
        if not isinstance(message, End):
            raise call_error(message)
        return b"".join(pieces)
