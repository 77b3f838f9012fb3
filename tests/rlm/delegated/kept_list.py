"""A list of segments as the plug-in keeps it: rows of a tag up to a cursor, and changes put in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rlm.delegated import wire
from rlmm.rows.queries import list_position
from rlmm.segment import RemoteLogSegmentMetadata
from sim.tier.plugin_bodies import ListAnswer

Row = RemoteLogSegmentMetadata
Ask = Callable[[bytes | None, bytes | None], Awaitable[ListAnswer]]
"""Asks with a tag and a cursor."""


@dataclass(slots=True)
class KeptList:
    """`cursor`: the place that `rows` end at; None: they are the whole list. `forms` counts the
    answers by form.
    """

    epoch: int | None
    tag: bytes | None = None
    rows: list[Row] = field(default_factory=list)
    cursor: bytes | None = None
    forms: list[int] = field(default_factory=lambda: [0, 0, 0])

    async def refresh(self, ask: Ask) -> None:
        """What the plug-in does first in each list."""
        had = self.tag
        answer = await ask(had, None)
        self.forms[answer.form] += 1
        if answer.form == wire.LIST_PAGE:
            self.tag, self.rows, self.cursor = answer.tag, list(answer.rows), answer.cursor
        elif answer.form == wire.LIST_SAME:
            assert answer.tag == had
            assert had is not None
        else:
            assert had is not None
            self._put_in(answer)

    def _put_in(self, answer: ListAnswer) -> None:
        changed = {row.segment_id.id for row in answer.rows}
        assert not changed & set(answer.gone)
        assert list(answer.rows) == self._sorted(answer.rows)
        old = changed | set(answer.gone)
        rows = [row for row in self.rows if row.segment_id.id not in old]
        self.rows = self._sorted([*rows, *self.within(answer.rows)])
        self.tag = answer.tag

    def _sorted(self, rows: list[Row] | tuple[Row, ...]) -> list[Row]:
        return sorted(rows, key=lambda row: list_position(row, self.epoch))

    def within(self, rows: list[Row] | tuple[Row, ...]) -> list[Row]:
        """Those up to the cursor."""
        return [row for row in rows if self.cursor is None or self._place(row) <= self.cursor]

    def _place(self, row: Row) -> bytes:
        epoch, start, id_ = list_position(row, self.epoch)
        return epoch.to_bytes(4, "big") + start.to_bytes(8, "big") + id_

    async def next_page(self, ask: Ask) -> bool:
        """One more page, kept if its tag is that of the rows; False: it is not."""
        answer = await ask(self.tag, self.cursor)
        assert answer.form == wire.LIST_PAGE
        if answer.tag == self.tag:
            self.rows += answer.rows
            self.cursor = answer.cursor
        return answer.tag == self.tag
