"""Lists of segments as the plug-in keeps them: pages of a tag, and the changes since.

A page of another tag goes on with the list, which then stands for no moment (SegmentLists, KeptRows
of the plug-in).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import wire
from rlmm.segment import RemoteLogSegmentMetadata
from sim.tier import plugin_bodies
from sim.tier.plugin_bodies import ListAnswer

Ask = Callable[[bytes], Awaitable[bytes]]


class _Place(NamedTuple):
    epoch: int
    start: int
    id: Uuid


@dataclass(frozen=True, slots=True)
class _Kept:
    """The first rows of a list, all of them if `cursor` is None."""

    tag: bytes | None
    rows: tuple[RemoteLogSegmentMetadata, ...]
    cursor: bytes | None

    def changed(self, answer: ListAnswer, epoch: int) -> _Kept:
        """The list with the changes since, as far as these rows go."""
        old = {*answer.gone, *(row.segment_id.id for row in answer.rows)}
        end = _place(self.rows[-1], epoch) if self.rows else None
        fresh = [
            row
            for row in answer.rows
            if self.cursor is None or (end is not None and _place(row, epoch) <= end)
        ]
        left = [row for row in self.rows if row.segment_id.id not in old]
        rows = tuple(sorted((*left, *fresh), key=lambda row: _place(row, epoch)))
        return _Kept(answer.tag, rows, self.cursor)


class KeptLists:
    """The lists of one life of a broker. `ask` makes the call."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._kept: dict[tuple[TopicIdPartition, int], _Kept] = {}

    async def rows(self, tip: TopicIdPartition, epoch: int) -> list[RemoteLogSegmentMetadata]:
        """listRemoteLogSegments."""
        kept = self._kept.get((tip, epoch))
        first = await self._page(tip, epoch, None if kept is None else kept.tag, None)
        if kept is not None and first.form == wire.LIST_SAME:
            now = kept
        elif kept is not None and first.form == wire.LIST_CHANGES:
            now = kept.changed(first, epoch)
        else:
            now = _Kept(first.tag, first.rows, first.cursor)
        self._kept[tip, epoch] = now
        found, cursor, is_one = list(now.rows), now.cursor, True
        while cursor is not None:
            page = await self._page(tip, epoch, now.tag, cursor)
            found += page.rows
            cursor, is_one = page.cursor, is_one and page.tag == now.tag
            if is_one:
                self._kept[tip, epoch] = _Kept(now.tag, tuple(found), cursor)
        return found

    async def _page(
        self, tip: TopicIdPartition, epoch: int, tag: bytes | None, cursor: bytes | None
    ) -> ListAnswer:
        asked = wire.ListSegments(tip, epoch, tag, cursor)
        return plugin_bodies.read_list(await self._ask(plugin_bodies.list_segments(asked)), tip)


def _place(row: RemoteLogSegmentMetadata, epoch: int) -> _Place:
    """The place of a row in the list of an epoch, or of all: as `RowPlace` of the plug-in."""
    for number, (each, start) in enumerate(row.leader_epochs):
        last = row.leader_epochs[number + 1 :]
        first = max(start, row.start_offset)
        end = min(last[0][1] - 1 if last else row.end_offset, row.end_offset)
        if first <= end and epoch in (wire.ALL_EPOCHS, each):
            return _Place(each, first, row.segment_id.id)
    raise AssertionError(f"{row.segment_id} holds nothing of epoch {epoch}")
