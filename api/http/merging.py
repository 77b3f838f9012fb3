"""Parts of a list, one of each node, put together to a page of the whole. Pure.

Nothing is lost between two pages, and nothing comes twice, while every node answers: a page ends
where one of the nodes may have more that would come next.
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
"""The place of a node whose lines were all shown."""
_NODE_ID_DIGITS_MAX = 10


def merge(
    parts: Iterable[tuple[Sequence[Item], bool]], key: Callable[[Item], Any], limit: int
) -> tuple[list[list[Item]], bool]:
    """The first `limit` groups of items with one key, and True if there are more.

    Each part is one node's page: items that ascend by `key`, and True if that node has more. No
    more of them is looked at than the page takes.
    """
    parts = list(parts)
    border = min((key(items[-1]) for items, more in parts if more and items), default=None)
    in_order = heapq.merge(*(items for items, _ in parts), key=key)
    known = takewhile(lambda group: border is None or group[0] <= border, groupby(in_order, key))
    groups = [list(group) for _, group in islice(known, limit + 1)]
    more = len(groups) > limit or any(more for _, more in parts)
    return groups[:limit], more and bool(groups)


class Timed(Protocol):
    """A line; `cursor` asks its node for the lines older than it."""

    @property
    def at_ms(self) -> int:
        """Milliseconds since the epoch."""

    @property
    def cursor(self) -> str:
        """The line's cursor, for the node that wrote it."""


Line = TypeVar("Line", bound=Timed)


@dataclass(frozen=True, slots=True)
class Lines(Generic[Line]):
    """Lines of one node, newest first as it wrote them. `cursor` asks for the same once more, and
    for none that it wrote since; `next_cursor` None: nothing is older.
    """

    cursor: str
    lines: Sequence[Line]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Merged(Generic[Line]):
    """Lines with their nodes, newest first. `places`: the cursor at which each node goes on, ENDED
    for none; a node that never answered is not in it, and begins with its newest line. `more`: one
    that answered has older lines.
    """

    lines: list[tuple[int, Line]]
    places: dict[int, str]
    more: bool


def merge_by_time(
    parts: Mapping[int, Lines[Line]], places: Mapping[int, str], limit: int
) -> Merged[Line]:
    """The newest `limit` lines of `parts`, by node id, which were asked for from `places` on.

    A node's lines stay in the order in which it wrote them, whatever its clock did. The page ends
    where a node's lines do that has older ones. Nodes that did not answer keep their places.
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
            raise InvalidRequest("no such place in this list: pass `next_cursor` unchanged",
                                 field="cursor")  # fmt: skip
        places[int(node)] = place
    return places
