"""Sends the body of an answer from the worker that verified it straight to the client.

The worker borrows the client's connection from the supervisor, which neither copies nor reads the
bytes. The connection goes back after the last byte. If fewer were sent, the supervisor closes it,
so that the client does not mistake a part for the whole body.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

from kafka_formats.errors import RetryLater
from rlm.data_plane.read_request import ClientEnd, SendRules, Sent
from rlm.data_plane.verified_chunks import Parts
from rlm.worker.send_pace import SendPace

TOLD_BYTES = 8 * 1024 * 1024
TOLD_S = 5.0
"""The longest time between two reports of sent bytes: a read must not seem stalled."""

_PARTS_AT_ONCE = 64
"""Limit of the parts in one write, well below IOV_MAX."""


class ClientSend:
    """One body being sent. `tell` is called with the number of sent bytes from time to time."""

    def __init__(
        self,
        client: socket.socket,
        rules: SendRules,
        monotonic: Callable[[], float],
        tell: Callable[[int], None],
    ) -> None:
        """`client` is non-blocking, and only this object writes to it."""
        self._client = client
        self._rules = rules
        self._monotonic = monotonic
        self._tell = tell
        self._pace = SendPace(rules.grace_s, rules.bytes_per_s_min)
        self._sent_bytes = 0
        self._told_bytes = 0
        self._told_at = monotonic()

    async def send_all(self, first: Parts | None, rest: AsyncIterator[Parts]) -> Sent:
        """Send until the end of `rest`; RetryLater if the store sends no bytes in time."""
        parts = first
        while parts is not None:
            end = await self._send(parts)
            if end is not None:
                return Sent(end, self._sent_bytes)
            self._tell_at_times()
            parts = await self._next(rest)
        return Sent(ClientEnd.TOOK_ALL, self._sent_bytes)

    async def _next(self, rest: AsyncIterator[Parts]) -> Parts | None:
        deadline_s = self._rules.store_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                return await anext(rest, None)
        except TimeoutError:
            raise RetryLater(f"no bytes came from the store within {deadline_s:g} s") from None

    async def _send(self, parts: Parts) -> ClientEnd | None:
        """Send all of `parts`, waiting while the connection is full; None if all were sent, else
        why sending ended.
        """
        began_at = self._monotonic()
        until = began_at + min(self._rules.grace_s, self._pace.left_s)
        left = [memoryview(part) for part in parts]
        size = 0
        while left:
            try:
                taken = self._client.sendmsg(left[:_PARTS_AT_ONCE])
            except BlockingIOError:
                if not await is_ready(self._client, until - self._monotonic()):
                    return ClientEnd.LATE
                continue
            except OSError:
                return ClientEnd.GONE
            size += taken
            self._sent_bytes += taken
            left = _behind(left, taken)
        self._pace.took(size, self._monotonic() - began_at)
        return None

    def _tell_at_times(self) -> None:
        now = self._monotonic()
        if self._sent_bytes - self._told_bytes >= TOLD_BYTES or now - self._told_at >= TOLD_S:
            self._told_bytes, self._told_at = self._sent_bytes, now
            self._tell(self._sent_bytes)


async def is_ready(client: socket.socket, deadline_s: float, *, to_read: bool = False) -> bool:
    """True once the connection accepts bytes (`to_read`: has bytes to read) or is broken; False at
    the deadline.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    timer = loop.call_later(max(deadline_s, 0.0), _settle, ready, False)
    watch, leave = loop.add_writer, loop.remove_writer
    if to_read:
        watch, leave = loop.add_reader, loop.remove_reader
    watch(client.fileno(), _settle, ready, True)
    try:
        return await ready
    finally:
        leave(client.fileno())
        timer.cancel()


def _settle(ready: asyncio.Future[bool], is_it: bool) -> None:
    if not ready.done():
        ready.set_result(is_it)


def _behind(views: list[memoryview], taken: int) -> list[memoryview]:
    """The views without the first `taken` bytes."""
    for number, view in enumerate(views):
        if taken < len(view):
            return [view[taken:], *views[number + 1 :]]
        taken -= len(view)
    return []
