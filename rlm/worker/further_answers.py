"""Answers a client's further requests from the worker that answered the first one.

A request stays unread in the connection until its answer is verified: a request that this worker
can't answer is read there by the supervisor, once the connection is its own again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from kafka_formats.errors import RetryLater, StrandlineError
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    ClientEnd,
    SegmentPiece,
    SegmentResolver,
    Sent,
)
from rlm.data_plane.verified_chunks import Parts
from rlm.worker.client_send import is_ready


class NoSupervisor(SegmentResolver):
    """The resolver while a connection is lent: the supervisor answers no requests of the worker
    then.
    """

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        raise RetryLater(f"the segment of offset {offset} is looked up once the connection is back")


@dataclass(slots=True)
class FurtherAnswers:
    """Reads and sends further answers; `read` and `send` as for the first one. A read takes
    `read_deadline_s` at most. No read begins while the worker `is_busy`, since other clients wait
    for their jobs.
    """

    client: socket.socket
    further: FurtherRequests
    read: Callable[[BatchesRequest], Awaitable[tuple[BatchesFound, bytes]]]
    send: Callable[[Parts], Awaitable[Sent]]
    read_deadline_s: float
    is_busy: Callable[[], bool]
    monotonic: Callable[[], float]

    async def after_first(self, request: BatchesRequest, found: BatchesFound, first: Sent) -> Sent:
        """Answer further requests after the first answer; returns how sending ended, once a
        different request arrives, or none in time.
        """
        further = self.further
        answers = size = 0
        end = first.end
        while end is ClientEnd.TOOK_ALL and not self.is_busy():
            asked = await self._next(found.next_offset)
            if asked is None:
                break
            request = replace(request, offset=found.next_offset, bytes_max=further.bytes_max)
            try:
                async with asyncio.timeout(self.read_deadline_s):
                    found, data = await self.read(request)
            except (StrandlineError, TimeoutError):
                break  # the supervisor reads the request again
            if not found.is_all or self._left_s <= 0:
                break
            self.client.recv(len(asked))
            head = further.head(asked, found.size_bytes)
            end = (await self.send((head, data, further.after))).end
            answers, size = answers + 1, size + found.size_bytes
        return Sent(end, first.sent_bytes, answers, size)

    @property
    def _left_s(self) -> float:
        return self.further.until_s - self.monotonic()

    async def _next(self, offset: int) -> bytes | None:
        """The request for `offset`, left unread in the connection; None: a different request came,
        or none in time.
        """
        while (left_s := self._left_s) > 0:
            try:
                seen = self.client.recv(len(self.further.request), socket.MSG_PEEK)
            except BlockingIOError:
                if not await is_ready(self.client, left_s, to_read=True):
                    return None
                continue
            except OSError:
                return None
            return seen if self.further.are_continued_by(seen, offset) else None
        return None
