"""Pages of long lists, without holding up the event loop and without keeping the list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from api.limits import SCAN_ITEMS_PER_SLICE

Item = TypeVar("Item")
Pause = Callable[[float], Awaitable[None]]


async def sliced(items: Iterable[Item], pause: Pause) -> AsyncIterator[Item]:
    """The items, with a turn for everybody else after each slice."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % SCAN_ITEMS_PER_SLICE == 0:
            await pause(0)


async def smallest(
    items: AsyncIterator[Item],
    key: Callable[[Item], tuple[str | int, ...]],
    after: tuple[str | int, ...] | None,
    limit: int,
) -> tuple[list[Item], bool]:
    """The `limit` items with the smallest keys above `after`, in order; whether there are more.

    Keeps at most `limit` and a slice of items at a time.
    """
    kept: list[Item] = []
    more = False
    async for item in items:
        if after is not None and key(item) <= after:
            continue
        kept.append(item)
        if len(kept) >= limit + SCAN_ITEMS_PER_SLICE:
            kept.sort(key=key)
            del kept[limit:]
            more = True
    kept.sort(key=key)
    return kept[:limit], more or len(kept) > limit
