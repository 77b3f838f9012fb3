"""Reads pages of long lists without blocking the event loop."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from api.http.api_limits import SCAN_ITEMS_PER_SLICE, STATUSES_PER_SLICE
from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.partition_status import PartitionStatus

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
    """The first `limit` matching items after the one with the key `after`; True if there are more.

    `items` ascend by `key`; no item after the page is read, except one to know that there are more.
    The event loop gets a turn after each slice.
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


def page_after(
    items: Sequence[Item], key: Callable[[Item], Key], after: Key | None, limit: int
) -> tuple[Sequence[Item], bool]:
    """Return a page as `first_after` does, from a sequence in the order of `key`."""
    begin = 0 if after is None else bisect_right(items, after, key=key)
    return items[begin : begin + limit], begin + limit < len(items)


async def statuses_of(
    partitions: Iterable[TopicIdPartition],
    status: Callable[[TopicIdPartition], PartitionStatus],
    pause: Pause,
) -> list[PartitionStatus]:
    """The status of each partition; partitions that are removed meanwhile are left out."""
    found: list[PartitionStatus] = []
    for number, tip in enumerate(partitions, start=1):
        if number % STATUSES_PER_SLICE == 0:
            await pause(0)
        try:
            found.append(status(tip))
        except NotFound:
            continue
    return found
