"""Merges the nodes' parts of a list into a page of the whole list. Pure.

While every node answers, no item is lost between two pages and none comes twice: a page ends where
a node may have more items that would come next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, takewhile
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from kafka_formats.errors import InvalidRequest

Item = TypeVar("Item")
ENDED = ""
"""The place of a node all of whose lines were shown."""
_NODE_ID_DIGITS_MAX = 10


def merge(
    parts: Iterable[tuple[Sequence[Item], bool]], key: Callable[[Item], Any], limit: int
) -> tuple[list[list[Item]], bool]:
    """The first `limit` groups of items with the same key; True if there are more.

    Each part is one node's page: items that ascend by `key`, and True if that node has more. Only
    the items that the page needs are read.
    """
    parts = list(parts)
    border = min((key(items[-1]) for items, more in parts if more and items), default=None)
    in_order = heapq.merge(*(items for items, _ in parts), key=key)
    known = takewhile(lambda group: border is None or group[0] <= border, groupby(in_order, key))
    groups = [list(group) for _, group in islice(known, limit + 1)]
    more = len(groups) > limit or any(more for _, more in parts)
    return groups[:limit], more and bool(groups)


class Timed(Protocol):
    """A line; with `cursor` its node returns the older lines."""

    @property
    def at_ms(self) -> int:
        """Milliseconds since the epoch."""

    @property
    def cursor(self) -> str:
        """The line's cursor, for the node that wrote it."""


Line = TypeVar("Line", bound=Timed)


@dataclass(frozen=True, slots=True)
class Lines(Generic[Line]):
    """Lines of one node, newest first in the order in which it wrote them. `cursor` requests the
    same lines again, without those written since; `next_cursor` None: there are no older lines.
    """

    cursor: str
    lines: Sequence[Line]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Merged(Generic[Line]):
    """Lines with their nodes, newest first. `places`: the cursor at which each node continues,
    ENDED if it has no more; a node that has never answered is missing, and begins with its newest
    line. `more`: a node that answered has older lines.
    """

    lines: list[tuple[int, Line]]
    places: dict[int, str]
    more: bool


def merge_by_time(
    parts: Mapping[int, Lines[Line]], places: Mapping[int, str], limit: int
) -> Merged[Line]:
    """The newest `limit` lines of `parts` (by node id), which were requested from `places` on.

    A node's lines stay in the order in which it wrote them, even if its clock was set back. The
    page ends where the lines of a node end that has older ones. Nodes that did not answer keep
    their places.
    """
    taken = dict.fromkeys(parts, 0)
    heads = [(-part.lines[0].at_ms, node) for node, part in parts.items() if part.lines]
    heapq.heapify(heads)
    shown: list[tuple[int, Line]] = []
    cut = any(not each.lines and each.next_cursor is not None for each in parts.values())
    while heads and not cut and len(shown) < limit:
        _, node = heapq.heappop(heads)
        part = parts[node]
        shown.append((node, part.lines[taken[node]]))
        taken[node] += 1
        if taken[node] < len(part.lines):
            heapq.heappush(heads, (-part.lines[taken[node]].at_ms, node))
        else:
            cut = part.next_cursor is not None
    after = dict(places)
    for node, part in parts.items():
        if taken[node] == len(part.lines):
            after[node] = ENDED if part.next_cursor is None else part.next_cursor
        else:
            after[node] = part.lines[taken[node] - 1].cursor if taken[node] else part.cursor
    return Merged(shown, after, any(after[node] != ENDED for node in parts))


def encode_places(places: Mapping[int, str]) -> str:
    """The text that `decode_places` reads."""
    return ",".join(f"{node}:{place}" for node, place in sorted(places.items(), key=itemgetter(0)))


def decode_places(text: str) -> dict[int, str]:
    """The place of each node. InvalidRequest: not what `encode_places` writes."""
    places: dict[int, str] = {}
    for each in text.split(",") if text else ():
        node, colon, place = each.partition(":")
        digits = node.isascii() and node.isdigit() and len(node) <= _NODE_ID_DIGITS_MAX
        if not (colon and digits and place.isascii()):
            raise InvalidRequest("not a cursor of this list: pass `next_cursor` unchanged",
                                 field="cursor")  # fmt: skip
        places[int(node)] = place
    return places
