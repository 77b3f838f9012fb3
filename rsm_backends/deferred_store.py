"""A store that could not be opened yet; each call tries again until it is open.

It is for stores that a node can do without for a while, such as a folder whose disk is not mounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from kafka_formats.errors import RetryLater, StrandlineError
from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, PortCalls, Read, Send
from rsm_backends.streams import closing_stream

_Answer = TypeVar("_Answer")


OPEN_DEADLINE_S = 5.0
"""The time that a start, or a call, waits for a folder to be opened; the opening itself goes on."""


async def in_time(name: str, opening: asyncio.Future[ObjectStore]) -> ObjectStore:
    """The store that is being opened. RetryLater: it is not open after `OPEN_DEADLINE_S`."""
    await asyncio.wait({opening}, timeout=OPEN_DEADLINE_S)
    if not opening.done():
        raise RetryLater(
            f"the store {name!r} could not be opened within {OPEN_DEADLINE_S:g} s: check that "
            "its disk or mount answers (df, dmesg)"
        )
    return opening.result()


class DeferredStore(PortCalls):
    """Passes calls on once `open_store` has succeeded; before that RetryLater with the reason.

    There is one attempt at a time: all calls wait for an attempt that hangs, in a thread, so that
    no further threads hang.
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[], Awaitable[ObjectStore]],
        attempt: asyncio.Future[ObjectStore] | None = None,
    ) -> None:
        """`name` is the store's name in the configuration, for errors; `attempt` an opening that
        has already begun.
        """
        self._name = name
        self._open_store = open_store
        self._attempt = attempt
        self._closed = False

    def __repr__(self) -> str:
        """The name, and the inner store once it is open."""
        attempt = self._attempt
        is_open = attempt is not None and attempt.done() and not _has_failed(attempt)
        store = attempt.result() if attempt is not None and is_open else None
        return f"DeferredStore({self._name!r}, {store!r})"

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:  # noqa: ARG002
        return await send(await self._opened())

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        async with closing_stream(read(await self._opened(), call.start)) as stream:
            async for piece in stream:
                yield piece

    async def close(self) -> None:
        self._closed = True
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.cancel()
        (opened,) = await asyncio.gather(attempt, return_exceptions=True)
        if not isinstance(opened, BaseException):
            await opened.close()

    async def _opened(self) -> ObjectStore:
        if self._closed:
            raise self._is_closed()
        if self._attempt is None or _has_failed(self._attempt):
            self._attempt = asyncio.ensure_future(self._open_store())
        attempt = self._attempt
        if attempt.done():
            return attempt.result()
        try:
            return await in_time(self._name, attempt)
        except StrandlineError as error:
            raise RetryLater(f"the store {self._name!r} cannot be opened now: {error}") from error
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise self._is_closed() from None
            raise

    def _is_closed(self) -> RetryLater:
        return RetryLater(f"the store {self._name!r} is closed")


def _has_failed(attempt: asyncio.Future[ObjectStore]) -> bool:
    return attempt.done() and (attempt.cancelled() or attempt.exception() is not None)
