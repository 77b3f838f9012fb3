"""Outcomes that wait for their proposers, and proposers that wait for outcomes.

A proposer gets its offset from the log at about the time at which the record is applied, and either
may come first. So outcomes are kept while a proposer may still ask for them: the offset of a
proposal under way is above the offset that was applied at its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from kafka_formats.errors import OutcomeUnknown, StrandlineError
from rlmm.apply.outcome import Outcome
from rlmm.partition_state import PartitionState
from rlmm.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """A partition right after one record, before the next was applied."""

    state: PartitionState
    left_overs: tuple[RemoteLogSegmentMetadata, ...]


class Decision(NamedTuple):
    """A record's outcome; `reading` for claims proposed here that have a partition."""

    outcome: Outcome
    reading: PartitionReading | None = None


class ProposalWaiters:
    """The waiters of a node's proposals, on one event loop; not thread-safe. `on_proposal` is
    called when a proposal begins.
    """

    def __init__(self, *, outcomes_kept_max: int, on_proposal: Callable[[], None]) -> None:
        self._on_proposal = on_proposal
        self._outcomes_kept_max = outcomes_kept_max
        self._kept: dict[int, Decision] = {}
        self._forgotten_below = 0
        self._under_way = 0
        self._waiting: dict[int, asyncio.Future[Decision]] = {}
        self._ended: StrandlineError | None = None

    @contextmanager
    def proposal(self) -> Iterator[None]:
        """A context around proposing and waiting: meanwhile outcomes are kept."""
        self._under_way += 1
        self._on_proposal()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._kept.clear()

    @property
    def may_ask(self) -> bool:
        """True while a proposer waits for an outcome, or may do so later."""
        return self._under_way > 0 or bool(self._waiting)

    def decided(self, offset: int, decision: Decision) -> None:
        """Take the decision on the record at `offset`, which is applied and readable now."""
        waiting = self._waiting.pop(offset, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(decision)
        elif self._under_way:
            self._kept[offset] = decision
            if len(self._kept) > self._outcomes_kept_max:
                oldest = next(iter(self._kept))
                del self._kept[oldest]
                self._forgotten_below = oldest + 1

    async def wait(self, offset: int) -> Decision:
        """The decision on the record at `offset`. OutcomeUnknown: it is gone."""
        kept = self._kept.pop(offset, None)
        if kept is not None:
            return kept
        if self._ended is not None:
            raise self._ended
        if offset < self._forgotten_below:
            raise _passed_over(offset)
        waiting: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting[offset] = waiting
        try:
            return await waiting
        finally:
            self._waiting.pop(offset, None)

    def passed_over(self, last_offset: int) -> None:
        """Fail the waiters up to `last_offset`: a snapshot replaced these records, so their
        outcomes are unknown.
        """
        self._forgotten_below = max(self._forgotten_below, last_offset + 1)
        for offset in [each for each in self._waiting if each <= last_offset]:
            waiting = self._waiting.pop(offset)
            if not waiting.done():
                waiting.set_exception(_passed_over(offset))

    def end(self, message: str) -> None:
        """Fail all waiters with OutcomeUnknown: no more records will be applied here."""
        self._ended = OutcomeUnknown(message)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(OutcomeUnknown(message))


def _passed_over(offset: int) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the outcome of metadata offset {offset} was passed over: read the row by its id"
    )
