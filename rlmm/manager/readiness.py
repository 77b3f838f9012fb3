"""Readiness of partitions: whether this node may answer that the tier has no segment (Kafka's
RLMM.isReady).

A view that lags may lack existing segments, and a broker that trusts such an answer would move its
log start and lose the tier. So a partition whose leadership changed is ready only when a barrier of
the metadata log, taken after the change, is applied here; after a start this holds for all
partitions, since a leadership may have changed meanwhile. Without a quorum leader no barrier
succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Protocol

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition

log = logging.getLogger(__name__)

BARRIER_DEADLINE_S = 10.0
BARRIER_RETRY_S = 0.1
CHANGED_MAX = 100_000
"""Limit of the partitions remembered one by one; beyond it, a change of one counts for all."""


class Barriers(Protocol):
    """The part of a metadata log that is used here."""

    async def barrier(self, *, deadline_s: float) -> int:
        """`MetadataLog.barrier`."""


class Readiness:
    """`run` is a task of the manager. `wait_for(offset)`: True once applied, False if never."""

    def __init__(self, metadata_log: Barriers, wait_for: Callable[[int], Awaitable[bool]]):
        self._log = metadata_log
        self._wait_for = wait_for
        self._changes = 1
        self._proven = 0  # every change up to this one lies before a barrier that is applied here
        self._own_applied = False
        self._all_changed_at = 1
        self._changed_at: dict[TopicIdPartition, int] = {}
        self._due = asyncio.Event()
        self._due.set()

    def changed(self, tips: Iterable[TopicIdPartition]) -> None:
        """Make `tips` unready until a barrier taken after this call is applied."""
        self._changes += 1
        for tip in tips:
            self._changed_at[tip] = self._changes
        if len(self._changed_at) > CHANGED_MAX:
            self._all_changed_at = self._changes
            self._changed_at.clear()
        self._due.set()

    def is_ready(self, tip: TopicIdPartition) -> bool:
        return self._proven >= max(self._all_changed_at, self._changed_at.get(tip, 0))

    @property
    def is_caught_up(self) -> bool:
        """True once any barrier taken, or record proposed, since the start is applied here."""
        return self._own_applied or self._proven > 0

    def own_record_applied(self) -> None:
        """Take note that a record proposed since the start, and all before it, is applied here."""
        self._own_applied = True

    async def run(self) -> None:
        """Take barriers: one covers all changes before it, and later changes share the next."""
        while True:
            await self._due.wait()
            self._due.clear()
            changes = self._changes
            try:
                offset = await self._log.barrier(deadline_s=BARRIER_DEADLINE_S)
            except StrandlineError as error:
                log.debug("partitions wait to be ready: %s", error)
                await self._pause()
                self._due.set()
                continue
            if not await self._wait_for(offset - 1):
                return
            self._proven = changes
            self._changed_at = {
                tip: change for tip, change in self._changed_at.items() if change > changes
            }

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BARRIER_RETRY_S):
                await asyncio.Event().wait()
