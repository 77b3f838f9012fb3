"""Groups partitions of a topic that one list can cover, by a common prefix of their keys. Pure.

The folders of a topic are numbers, so a first digit is the prefix of many of them. Such a prefix is
listed only if all partitions with it are wanted: no list returns unwanted partitions, and no list
needs the store's order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

TOGETHER_MAX = 16
"""Most partitions in one list: pages of one list come one by one, several lists run at once."""


def shared_prefixes(
    wanted: Iterable[int], folders: Collection[str] | None
) -> list[tuple[str, list[int]]]:
    """Prefixes within the topic's folder, each with its partitions; together these are all of
    `wanted`. `folders` are all names in the topic's folder; None if unknown.
    """
    if folders is None:
        return [(f"{number}/", [number]) for number in sorted(set(wanted))]
    names = {str(number) for number in wanted}
    return [
        (prefix, [int(name) for name in below])
        for prefix, below in _cut("", sorted(names), sorted(names.union(folders)))
    ]


def _cut(prefix: str, wanted: list[str], there: list[str]) -> Iterator[tuple[str, list[str]]]:
    if len(wanted) == 1:
        yield f"{wanted[0]}/", wanted
        return
    if len(wanted) == len(there) <= TOGETHER_MAX:
        yield prefix, wanted
        return
    longer = [name for name in wanted if name != prefix]
    if len(longer) < len(wanted):
        yield f"{prefix}/", [prefix]
    for start, below in groupby(longer, key=lambda name: name[: len(prefix) + 1]):
        yield from _cut(start, list(below), [name for name in there if name.startswith(start)])
