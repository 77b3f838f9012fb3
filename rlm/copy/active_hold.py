"""Keeps records of active segments from local retention, beside what `hold` keeps of sealed ones.

`active_plan` has the rules, `active_links` the links. Everything here blocks: it is a part of the
pass over one hold directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import CorruptData
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.hold_pass import Order, Orders, Passed
from rlm.local_log.active_links import (
    ActiveLink,
    active_root,
    find_links,
    link_active,
    link_beside,
    remove_links,
)
from rlm.local_log.active_plan import Fate, fate, to_link
from rlm.local_log.hold_directory import (
    HoldDirectory,
    Unread,
    is_one_file,
    own_segment,
    why_unread,
)
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalSegment

LINKS_A_PASS = 200
"""Each is synced: a node that starts beside ten thousand partitions makes them in many passes."""


@dataclass(slots=True)
class _Linked:
    """`segments`: the broker's own when the link was last found to be of its active segment."""

    link: ActiveLink
    segments: Sequence[LocalSegment] | None = None


class ActiveHold:
    """The links of one hold directory."""

    def __init__(self, directory: HoldDirectory) -> None:
        self._directory = directory
        self._root = active_root(directory.path)
        self._links: dict[TopicIdPartition, list[_Linked]] = {}
        self._unread: dict[Path, Unread] = {}

    def find(self) -> None:
        """Find the links of an earlier process, or of another disk. OSError: none is known."""
        self._links, self._unread = {}, {}
        for link in find_links(self._root):
            self._links.setdefault(link.partition, []).append(_Linked(link))

    def unread(self) -> Iterable[Unread]:
        """Links whose batches do not tell what they have."""
        return list(self._unread.values())

    def look(self, orders: Orders, held: list[Unit], passed: Passed) -> None:
        """Link active segments, and make units, added to `held`, of those that left the log."""
        for partition in list(self._links):
            kept = list(self._looked_at(partition, orders, held, passed))
            if kept:
                self._links[partition] = kept
            else:
                del self._links[partition]
        for order in self._to_link(orders):
            with passed.going_on():
                link = link_active(self._root, order.local)
                if link is not None:
                    linked = _Linked(link, order.local.segments)
                    self._links.setdefault(link.partition, []).append(linked)

    def _to_link(self, orders: Orders) -> list[Order]:
        found = []
        for partition, order in orders.by_partition.items():
            active = to_link(order.facts)
            is_here = order.local.directory.parent in self._directory.log_dirs
            if active is None or not is_here or order.is_delegated:
                continue
            known = {each.link.base_offset for each in self._links.get(partition, ())}
            if active.base_offset not in known:
                found.append(order)
            if len(found) == LINKS_A_PASS:
                break
        return found

    def _looked_at(
        self, partition: TopicIdPartition, orders: Orders, held: list[Unit], passed: Passed
    ) -> Iterator[_Linked]:
        order = orders.by_partition.get(partition)
        for each in self._links[partition]:
            if order is not None and order.local.segments is each.segments:
                yield each
                continue
            stays = True  # where that fails
            with passed.going_on():
                mine = [unit for unit in held if unit.partition == partition]
                if order is None:
                    stays = self._stays_without_log(each, orders, mine, held)
                else:
                    stays = self._stays(each, order, mine, held)
            if stays:
                yield each

    def _stays(self, linked: _Linked, order: Order, mine: list[Unit], held: list[Unit]) -> bool:
        link, local = linked.link, order.local
        own = own_segment(local, link.segment)
        named = (each for each in local.segments if each.base_offset == link.base_offset)
        if own is None and any(not each.log_path.exists() for each in named):
            return True  # removed since the look: the next one tells how
        match fate(order.facts, link.base_offset, own, mine):
            case Fate.DROP:
                return self._drop(link)
            case Fate.HOLD:
                return self._hold(linked, order, mine, held)
        if own is not None:
            linked.link = link_beside(link, local)
            linked.segments = local.segments if own.next_base_offset is None else None
        return True

    def _stays_without_log(
        self, linked: _Linked, orders: Orders, mine: list[Unit], held: list[Unit]
    ) -> bool:
        """Of a replica that is not here now, and may come back."""
        link = linked.link
        if link.partition in orders.deleted:
            return self._drop(link)
        try:
            left = os.stat(link.log_path).st_nlink == 1
        except FileNotFoundError:
            return self._drop(link)
        return not left or self._hold(linked, None, mine, held)

    def _hold(
        self, linked: _Linked, order: Order | None, mine: list[Unit], held: list[Unit]
    ) -> bool:
        """Make a unit of a file that has left the log; True if its batches do not tell what it
        has.
        """
        link = linked.link
        if link.path in self._unread:
            return True
        if any(is_one_file(unit.segment, link.segment) for unit in mine):
            return self._drop(link)
        try:
            unit = self._directory.hold_left(link, None if order is None else order.local)
        except CorruptData as error:
            self._unread[link.path] = Unread(link.partition, why_unread(link.path, error))
            return True
        except FileNotFoundError:
            return self._drop(link)
        if unit is not None:
            held.append(unit)
        return self._drop(link)

    def _drop(self, link: ActiveLink) -> bool:
        """Always False. A disk that is away tells nothing, and is an OSError."""
        os.stat(self._directory.path)
        self._unread.pop(link.path, None)
        remove_links(link.path)
        return False
