"""A store that could not be opened yet; each call tries again until it opens.

For stores that a node can do without for a while, such as a folder whose disk is not mounted.
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


class DeferredStore(PortCalls):
    """Passes calls on once `open_store` has succeeded; until then RetryLater with the reason."""

    def __init__(self, name: str, open_store: Callable[[], Awaitable[ObjectStore]]) -> None:
        """`name` is the store's name in the configuration, for errors."""
        self._name = name
        self._open_store = open_store
        self._opening = asyncio.Lock()
        self._store: ObjectStore | None = None
        self._closed = False

    def __repr__(self) -> str:
        """The name, and the store within once it is open."""
        return f"DeferredStore({self._name!r}, {self._store!r})"

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:  # noqa: ARG002
        return await send(await self._opened())

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        async with closing_stream(read(await self._opened(), call.start)) as stream:
            async for piece in stream:
                yield piece

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._store is not None:
                await self._store.close()

    async def _opened(self) -> ObjectStore:
        if self._store is None:
            async with self._opening:
                if self._closed:
                    raise RetryLater(f"the store {self._name!r} is closed")
                if self._store is None:
                    try:
                        self._store = await self._open_store()
                    except StrandlineError as error:
                        raise RetryLater(
                            f"the store {self._name!r} cannot be opened now: {error}"
                        ) from error
        return self._store
