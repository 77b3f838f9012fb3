"""Which partitions of a topic are listed together: by keys that start alike. Pure.

The folders of a topic are numbers, so that a first digit is the prefix of many of them. A list goes
by such a prefix where nothing stands behind it but partitions that are wanted: no list brings what
nobody asked for, and none needs the store to list in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

TOGETHER_MAX = 16
"""Partitions in one list: its pages come one after the other, different lists at once."""


def shared_prefixes(
    wanted: Iterable[int], folders: Collection[str] | None
) -> list[tuple[str, list[int]]]:
    """Prefixes behind the topic's folder, each with the partitions that stand behind it; together
    they are those `wanted`. `folders` are the names of all that the topic's folder has; None: not
    known.
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
