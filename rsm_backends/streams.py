"""Reads a store's streams to the end, or leaves them early without leaking a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TypeVar

from rsm_backends.store import ObjectStore

_Item = TypeVar("_Item")


def closing_stream(
    stream: AsyncIterator[_Item],
) -> AbstractAsyncContextManager[AsyncIterator[_Item]]:
    """Close `stream` at the end of the block, so that its connection is free at once.

    An abandoned stream would be closed too, but only when the garbage collector finds it.
    """
    if not hasattr(stream, "aclose"):
        return nullcontext(stream)
    return aclosing(stream)  # type: ignore[type-var]  # mypy does not see that it has one


async def read_all(
    store: ObjectStore, key: str, *, start: int = 0, end: int | None = None
) -> bytes:
    """Read the bytes [start, end) in one piece; for objects known to be small."""
    async with closing_stream(store.get(key, start=start, end=end)) as stream:
        return b"".join([piece async for piece in stream])
