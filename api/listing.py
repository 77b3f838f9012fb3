"""Pages of long lists, without holding up the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from api.limits import SCAN_ITEMS_PER_SLICE

Item = TypeVar("Item")
Key = tuple[str | int | bytes, ...]
Pause = Callable[[float], Awaitable[None]]


async def first_after(
    items: Iterable[Item],
    key: Callable[[Item], Key],
    after: Key | None,
    limit: int,
    pause: Pause,
    matches: Callable[[Item], bool] = lambda _: True,
) -> tuple[list[Item], bool]:
    """The first `limit` matching items behind the one with the key `after`; whether there are more.

    `items` ascend by `key`; what lies behind the page is not looked at. Everybody else gets a turn
    of the event loop after each slice.
    """
    found: list[Item] = []
    for number, item in enumerate(items, start=1):
        if number % SCAN_ITEMS_PER_SLICE == 0:
            await pause(0)
        if (after is not None and key(item) <= after) or not matches(item):
            continue
        if len(found) == limit:
            return found, True
        found.append(item)
    return found, False
