"""Answers that a worker sends to the client itself, over the connection that this process lends to
it.

This works only over plain HTTP, where the bytes of an answer are those of the connection, and only
for a known length. This process sends the head, then nothing until the worker is done and the
connection is returned. A connection whose client did not read the whole body is aborted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope, Send

from api.http.api_limits import ApiLimits
from api.http.streaming import HEAD_SCOPE_KEY, PumpedAnswer, StreamSlots
from kafka_formats.errors import InternalError, RetryLater
from rlm.data_plane.read_request import ClientEnd, SendRules, WaitingRead

LEND_EXTENSION = "strandline.lend"
"""Key of a `Lend` in `scope["extensions"]`, where the connection can be lent."""

DIRECT_BYTES_MIN = 512 * 1024
"""The shortest answer for which a connection is lent: for shorter ones lending costs more than
sending the bytes.
"""

Lend = Callable[[], AbstractAsyncContextManager[socket.socket | None]]
"""Context around a body sent by a worker, after the head. None: the client has disconnected.
Leaving the block with an exception aborts the connection.
"""

_log = logging.getLogger("strandline.api")


def lend_of(scope: Scope, size_bytes: int) -> Lend | None:
    """The `Lend` of this request for an answer of `size_bytes`; None: this process sends it."""
    if scope.get(HEAD_SCOPE_KEY) or size_bytes < DIRECT_BYTES_MIN:
        return None
    extensions: Mapping[str, Any] = scope.get("extensions", {})
    return extensions.get(LEND_EXTENSION)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer."""

    status_code: int
    headers: Mapping[str, str]
    media_type: str


class DirectAnswer(PumpedAnswer):
    """An answer whose `size_bytes` bytes are sent by the read that `opening` opens."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[WaitingRead],
        lend: Lend,
        slots: StreamSlots,
        limits: ApiLimits,
        head: Head,
        size_bytes: int,
        *,
        store_deadline_s: float | None = None,
    ) -> None:
        """`store_deadline_s` bounds the answers of the store; None: the deadline of any chunk."""
        super().__init__(
            status_code=head.status_code, headers=head.headers, media_type=head.media_type
        )
        self._opening = opening
        self._lend = lend
        self._slots = slots
        self._limits = limits
        self._size_bytes = size_bytes
        given_s = store_deadline_s
        self._store_deadline_s = limits.chunk_deadline_s if given_s is None else given_s

    async def _pump(self, send: Send) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._slots.taken(self._limits))
            waiting = await self._opened(stack)
            await self._start(send)
            if await self._send_body(waiting):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _opened(self, stack: AsyncExitStack) -> WaitingRead:
        deadline_s = self._store_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                return await stack.enter_async_context(self._opening)
        except TimeoutError:
            raise RetryLater(
                f"the store sent no bytes within {deadline_s:g} s: try again, and check the "
                "store if it persists"
            ) from None

    async def _send_body(self, waiting: WaitingRead) -> bool:
        """Send the body; True if the client took all of it, else the connection is aborted."""
        rules = SendRules(
            grace_s=self._limits.chunk_deadline_s,
            bytes_per_s_min=self._limits.stream_bytes_per_s_min,
            store_deadline_s=self._store_deadline_s,
        )
        try:
            async with self._lend() as client:
                if client is None:
                    return False
                sent = await waiting.send_to(client, rules)
                if sent.end is not ClientEnd.TOOK_ALL:
                    raise _LeftError(sent.end)
                if sent.sent_bytes != self._size_bytes:
                    raise InternalError(
                        f"the read ended after {sent.sent_bytes} of {self._size_bytes} bytes"
                    )
        except _LeftError as left:
            if left.end is ClientEnd.LATE:
                _log.info("a client stopped reading its answer: its connection is aborted")
            return False
        return True


class _LeftError(Exception):
    """The client itself caused that it took less than all bytes."""

    def __init__(self, end: ClientEnd) -> None:
        super().__init__(end.value)
        self.end = end
