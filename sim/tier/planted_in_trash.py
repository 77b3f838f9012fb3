"""Planted bugs about the trash: marks, their time, restores, empties, and readers near them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import rlm.fetch.resolved_reads
import rlm.fetch.tier_answers
import rlm.retention.retention_plan
import rlmm.apply.claims
import rlmm.apply.expiry
import rlmm.apply.offsets
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.fetch.list_offsets import OffsetAnswer, answer_special
from rlm.fetch.resolved_reads import check_readable
from rlm.fetch.timestamp_search import TimestampSearch
from rlm.retention.expirer import Expirer
from rlm.retention.mark_times import DueMark, MarksSeen
from rlmm.apply.expiry import settle_marks
from rlmm.apply.outcome import NO_EFFECT, Draft, Outcome, conflict, find
from rlmm.manager.trash_writes import TrashWrites
from rlmm.partition_state import NOTHING_EXPIRES, Expiry, ExpiryMark, PartitionState
from rlmm.rows.queries import ServedSegment
from rlmm.rows.reads import read_measured_time
from rlmm.segment import OFFSET_MAX
from sim.ground.planting import Patches, edited, planting

TRASH_SEEDS_MAX = 60
LONG_AGO_S = 1e6

_delete_records = Expirer.delete_records
_look = MarksSeen.look
_mark = rlmm.apply.expiry._mark


def _no_objection(*_: object) -> None:
    pass


def _at_once(*_: object) -> int:
    return 0


def _nothing_stays(*_: object) -> bool:
    return False


def _log_start(state: PartitionState) -> int:
    return state.log_start_offset


def _untrashed(state: PartitionState) -> PartitionState:
    return replace(state, expiry=NOTHING_EXPIRES)


async def _from_the_log_start(search: TimestampSearch) -> AsyncIterator[ServedSegment]:
    reader = search.reader
    state = _untrashed(reader.state_of(search.partition))
    for served in reader.metadata.served_segments(state, 0, OFFSET_MAX):
        yield served


def _earliest_in_trash(spec: Any, tip: Any, state: Any, *others: Any) -> OffsetAnswer:
    return answer_special(spec, tip, None if state is None else _untrashed(state), *others)


def _readable_in_trash(state: PartitionState, offset: int) -> None:
    check_readable(_untrashed(state), offset)


def _not_cut(
    draft: Draft, partition: TopicIdPartition, log_start: int, _: int | None = None
) -> None:
    settle_marks(draft, partition, log_start)


def _cut_marks_go(
    draft: Draft, partition: TopicIdPartition, log_start: int, cut_at: int | None = None
) -> None:
    """Bring back what lies below the cut, too."""
    settle_marks(draft, partition, log_start, None if cut_at is None else -1)


def _said_to_be_done(message: str) -> Outcome:
    return NO_EFFECT if "read it again" in message else conflict(message)


async def _everything(expirer: Expirer, tip: TopicIdPartition, before: int, **named: Any) -> Any:
    """Empty up to the end of what is tiered."""
    state = expirer.metadata.partition_state(tip)
    assert state is not None
    return await _delete_records(expirer, tip, max(before, state.next_offset), **named)


async def _without_a_mark(
    expirer: Expirer, tip: TopicIdPartition, before: int, **named: Any
) -> Any:
    """Empty as `delete-records` does."""
    return await _delete_records(expirer, tip, before, **named | {"emptied": None})


async def _says_so_only(expirer: Expirer, tip: TopicIdPartition, before: int, **named: Any) -> Any:
    return await _delete_records(expirer, tip, before, **named | {"apply": False})


def _no_mark_asked(_: Draft, record: Any) -> Outcome | None:
    """Ask for the time alone, as the proposer saw it."""
    early = record.mark_offset is not None and record.seen_ms < 0
    return conflict("too early") if early else None


class _ByRestart:
    """Takes marks that stood at a process's first look for older than any trash."""

    def __init__(self) -> None:
        self._looked: set[tuple[int, TopicIdPartition]] = set()

    def look(self, marks: MarksSeen, tip: TopicIdPartition, expiry: Expiry) -> None:
        _look(marks, tip, expiry)
        if (id(marks), tip) not in self._looked and expiry.marks:
            since = marks._since_s[tip]
            marks._since_s[tip] = dict.fromkeys(since, marks.monotonic() - LONG_AGO_S)
        self._looked.add((id(marks), tip))


def _counts_from_its_record(draft: Draft, record: Any) -> ExpiryMark:
    return _mark(draft, record)._replace(counts_from_ms=read_measured_time(draft.rows).ms)


class _Remembers:
    """Goes by the marks that it saw first."""

    def __init__(self) -> None:
        self._first: dict[TopicIdPartition, Expiry] = {}

    def due(self, _: MarksSeen, tip: TopicIdPartition, expiry: Expiry) -> DueMark | None:
        if expiry.marks:
            self._first.setdefault(tip, expiry)
        seen = self._first.get(tip, expiry)
        return DueMark(seen.marks[-1], 0) if seen.marks and not expiry.marks else None


_LOG_START: Any = property(_log_start)
_NO_TRASH: Any = property(_at_once)

BUGS_OF_TRASH: dict[str, Patches] = {
    "readers start at the log start": ((PartitionState, "first_readable_offset", _LOG_START),),
    "the log start follows at once": (
        (MarksSeen, "left_ms", _at_once),
        (rlmm.apply.offsets, "not_due", _no_objection),
    ),
    "the log start goes without a mark": ((Expirer, "_trash_ms", _NO_TRASH),),
    "a hold is forgotten": (
        (rlmm.apply.expiry, "on_hold", _no_objection),
        (rlm.retention.retention_plan, "_hold", _no_objection),
    ),
    "a look-up by time ignores the mark": ((TimestampSearch, "_served", _from_the_log_start),),
    "the earliest offset is the log start": (
        (rlm.fetch.tier_answers, "answer_special", _earliest_in_trash),
    ),
    "a read below the mark is let in": (
        (rlm.fetch.resolved_reads, "check_readable", _readable_in_trash),
    ),
    "a mark survives a cut": ((rlmm.apply.claims, "settle_marks", _not_cut),),
    "a cut takes the marks that it lies below": (
        (rlmm.apply.claims, "settle_marks", _cut_marks_go),
    ),
    "a restore behind the log start is said to be done": (
        (rlmm.apply.expiry, "conflict", _said_to_be_done),
    ),
    "a due mark is followed that was taken back meanwhile": (
        (rlmm.apply.offsets, "not_due", _no_mark_asked),
    ),
    "a topic to be deleted gets its trash back": ((rlmm.apply.expiry, "find_live", find),),
    "an empty deletes beyond the mark": (
        (Expirer, "delete_records", _everything),
        (rlmm.apply.offsets, "not_due", _no_objection),
    ),
    "an empty deletes what was restored meanwhile": ((Expirer, "delete_records", _without_a_mark),),
    "an empty deletes nothing": ((Expirer, "delete_records", _says_so_only),),
    "the trash of a topic that is brought back keeps its age": (
        (
            TrashWrites,
            "undo_partition_delete",
            edited(
                TrashWrites.undo_partition_delete, "if expiry.marks:", "if expiry.marks and hold:"
            ),
        ),
    ),
    "what a later leader lacks goes at once": (
        (rlm.retention.retention_plan, "_may_return", _nothing_stays),
    ),
    "what all nodes measured counts from a mark's record on": (
        (rlmm.apply.expiry, "_mark", _counts_from_its_record),
    ),
    "a joined mark keeps the earlier time": (
        (
            rlmm.apply.expiry,
            "_joined",
            edited(
                rlmm.apply.expiry._joined,
                "began_ms=before.began_ms,",
                "began_ms=before.began_ms, counts_from_ms=before.counts_from_ms,",
            ),
        ),
    ),
}
"""Bugs found by seeds of a world with a trash, within `TRASH_SEEDS_MAX`."""


def _that_remember() -> dict[str, Patches]:
    """Mistakes with a memory, each time a new one."""
    remembers, restart = _Remembers(), _ByRestart()
    return {
        "what was taken back goes": (
            (MarksSeen, "due", lambda *args: remembers.due(*args)),
            (rlmm.apply.offsets, "not_due", _no_objection),
        ),
        "a restart counts as the time that passed": (
            (MarksSeen, "look", lambda *args: restart.look(*args)),
        ),
    }


TRASH_BUGS = (*BUGS_OF_TRASH, *_that_remember())


def planted_in_trash(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting((BUGS_OF_TRASH | _that_remember())[name])
