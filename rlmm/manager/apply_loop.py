"""Follows the metadata log and applies it to the view, in order, in short steps.

One view commit per step: rows, applied offset, epoch and digest change together. Proposers get the
outcome only after the commit, so that their writes are readable here then.

A feature level that this release does not know ends applying before the record that sets it: later
records may have a different meaning then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.usual_adds import judged
from rlmm.manager.metadata_limits import MetadataLimits
from rlmm.manager.proposal_waiters import Decision, PartitionReading, ProposalWaiters
from rlmm.metadata_log import CommittedGroup, CommittedRecord, MetadataLog
from rlmm.records.control_records import ControlRecordType
from rlmm.records.segment_records import SEGMENT_FRONT
from rlmm.rows import queries
from rlmm.rows.feature_level import check_feature_level
from rlmm.rows.rows import OverlayRows, RowChange
from rlmm.view.hot_rows import HotRows
from rlmm.view.snapshots import install_if_needed
from rlmm.view.view import View

T = TypeVar("T")

COST_OF_OTHERS = 10
"""The cost of a record that is no segment add, in added segments: it reads and writes coverage and
more.
"""

IMPORTED_BYTES_A_COST = 50
"""The bytes of imported segments that cost as much as one added segment."""

FULL_GROUP_RECORDS = 256
"""The number of records in a group after which more follow: there is no rest before the next."""


_ABOUT_ALL = frozenset(
    {
        ControlRecordType.NODE_REGISTRATION,
        ControlRecordType.NODE_CONTESTED,
        ControlRecordType.NODE_SILENCE,
        ControlRecordType.NODE_STOPPED,
        ControlRecordType.NODE_REMOVED,
        ControlRecordType.CLUSTER_SETTING,
        ControlRecordType.MIGRATION_PHASE,
    }
)
"""The records that change the list of nodes or of settings, the phase of the move, or which claims
are in force, and so the states of any partitions.
"""

_NOWHERE = -2
"""The `before` offset of a commit after which no cached state is valid."""


class ApplyPace:
    """Decides when the next committed records are applied: at once while a caller waits for them,
    else after a rest, during which more records arrive. `awaited()` ends a rest: call it when a
    caller begins to wait for an outcome. Used on one event loop; one task rests.

    After a few milliseconds of other work the memory that a step of apply uses has left the
    processor's caches; to load it again costs as much as some twenty records. A node without
    waiting callers pays that once per rest instead of at every commit. A record that arrives after
    the rest is applied at once.
    """

    def __init__(self, rest_ms: int) -> None:
        self._rest_s = rest_ms / 1000
        self._waiting = 0
        self._resting: asyncio.Future[None] | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A context without rests, around the wait for an offset."""
        self._waiting += 1
        self.awaited()
        try:
            yield
        finally:
            self._waiting -= 1

    def awaited(self) -> None:
        """End the rest that is under way."""
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    async def rest(self) -> None:
        """Return when the next records should be applied."""
        if self._waiting or not self._rest_s:
            return
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        timer = loop.call_later(self._rest_s, self.awaited)
        try:
            await self._resting
        finally:
            timer.cancel()
            self._resting = None


@dataclass(frozen=True, slots=True)
class ApplyHearers:
    """Callbacks of the apply loop. `committed` is called at once with the partitions of committed
    records and the offset before them, `changed` with their changes of rows, `applied` after each
    group with its `advanced_s`.
    """

    committed: Callable[[Iterable[TopicIdPartition], int], None]
    changed: Callable[[Iterable[RowChange], int], None]
    applied: Callable[[float | None], None]


class ApplyLoop:
    """`run` is a task of the manager; `flush` may be called from another."""

    def __init__(
        self,
        log: MetadataLog,
        view: View,
        waiters: ProposalWaiters,
        pace: ApplyPace,
        limits: MetadataLimits,
        hearers: ApplyHearers,
    ) -> None:
        """Each proposal of the `waiters` ends a rest of the `pace`."""
        self._log = log
        self._view = view
        self._rows = HotRows(view)
        self._waiters = waiters
        self._limits = limits
        self._committed = hearers.committed
        self._changed = hearers.changed
        self._applied = hearers.applied
        self._pace = pace
        self._flush_lock = asyncio.Lock()
        self._group_lock = asyncio.Lock()
        self._claims: Counter[bytes] = Counter()
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = False
        self.is_installing = False
        self._unflushed_records = 0
        self.flush_due = asyncio.Event()
        self.snapshot_due = asyncio.Event()
        self._records_since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._count_for_snapshot(_records_behind(log, view), 0)

    @contextmanager
    def reading_claim(self, value: bytes) -> Iterator[None]:
        """A context in which a claim with these bytes has its partition read at the claim's own
        offset.
        """
        self._claims[value] += 1
        try:
            yield
        finally:
            self._claims[value] -= 1
            if not self._claims[value]:
                del self._claims[value]

    async def run(self) -> None:
        """Apply until the log is closed; continue from a snapshot if the log's start has passed the
        view (KIP-630).
        """
        try:
            while True:
                try:
                    async for group in self._log.follow(self._view.applied_offset + 1):
                        await self._apply_group(group)
                        self._applied(group.advanced_s)
                        is_full = len(group.records) >= FULL_GROUP_RECORDS
                        if not is_full and not self._waiters.may_ask:
                            await self._pace.rest()
                    return
                except NotFound:
                    await self._install_snapshot()
        finally:
            self._ended = True
            self._wake()

    async def _install_snapshot(self) -> None:
        """Install a snapshot, since the log starts above the view; the outcome of proposals in
        between stays unknown.
        """
        async with self._flush_lock:
            self.is_installing = True
            try:
                await install_if_needed(self._log, self._view, self._limits.feature_levels)
            finally:
                self.is_installing = False
            self._rows.forget()
            self._committed((), _NOWHERE)
            self._log.allow_truncation_to(self._view.flushed_offset + 1)
        self._waiters.passed_over(self._view.applied_offset)
        self._unflushed_records = 0
        self.snapshot_begun()
        self._wake()

    async def wait_for(self, offset: int) -> bool:
        """Wait until `offset` is applied; False if it never will be."""
        if self._view.applied_offset < offset:
            with self._pace.waiting():
                while self._view.applied_offset < offset:
                    if self._ended:
                        return False
                    await asyncio.shield(self._advanced)
        return True

    async def between_groups(self, call: Callable[[], T]) -> T:
        """Run `call` while the view ends where a group, and with it a record batch, does."""
        async with self._group_lock:
            return call()

    async def flush(self, *, busy: bool | None = None) -> None:
        """Make the view durable, and let the log be cut up to there; `busy` as in `View.flush`."""
        async with self._flush_lock:
            self._unflushed_records = 0
            self.flush_due.clear()
            # The log first: if the view is lost later, its records are known to be in the log.
            known_end = await self._log.store_recovery_point()
            flush = partial(self._view.flush, busy=busy)
            flushing = asyncio.get_running_loop().run_in_executor(None, flush)
            try:
                await asyncio.shield(flushing)
            except asyncio.CancelledError:
                # The thread goes on, and the view must stay open until it ends.
                await asyncio.wait([flushing])
                raise
            if self._view.flushed_offset >= known_end:  # applied meanwhile
                await self._log.store_recovery_point()
            self._log.allow_truncation_to(self._view.flushed_offset + 1)

    def snapshot_begun(self) -> None:
        """Restart the counts for the next snapshot, from the applied offset."""
        self._records_since_snapshot = self._bytes_since_snapshot = 0
        self.snapshot_due.clear()

    def _count_for_snapshot(self, records: int, size_bytes: int) -> None:
        self._records_since_snapshot += records
        self._bytes_since_snapshot += size_bytes
        if (
            self._records_since_snapshot >= self._limits.snapshot_records
            or self._bytes_since_snapshot >= self._limits.snapshot_bytes
        ):
            self.snapshot_due.set()

    async def _apply_group(self, group: CommittedGroup) -> None:
        async with self._group_lock:
            await self._apply_steps(group)

    async def _apply_steps(self, group: CommittedGroup) -> None:
        records = group.records
        # A group without records still moves the applied offset, past records of the log itself.
        start = 0
        while start < len(records) or not start:
            end = _step_end(records, start, self._limits.apply_cost_max)
            part = records[start:end]
            if end < len(records):
                self._apply_step(part, part[-1].offset, part[-1].epoch)
            else:
                self._apply_step(part, group.end_offset - 1, group.end_epoch)
            await _Turn()
            start = max(end, 1)

    def _apply_step(
        self, records: Sequence[CommittedRecord], last_offset: int, last_epoch: int
    ) -> None:
        decisions = self._commit(records, last_offset, last_epoch)
        self._unflushed_records += len(records)
        if self._unflushed_records >= self._limits.view_flush_records:
            self.flush_due.set()
        self._count_for_snapshot(len(records), sum(len(record.value) for record in records))
        for offset, decision in decisions:
            self._waiters.decided(offset, decision)
        self._wake()

    def _commit(
        self, records: Sequence[CommittedRecord], last_offset: int, last_epoch: int
    ) -> list[tuple[int, Decision]]:
        """Commit the records; the outcome of each, if a proposer may ask for it."""
        overlay = OverlayRows(self._rows)
        decisions = []
        partitions = set()
        told, of_all = self._waiters.may_ask, False
        last: TopicIdPartition | None = None
        for record, outcome, partition in judged(overlay, records):
            if partition is not last and partition is not None:
                partitions.add(partition)
                last = partition
            if record.control_type == ControlRecordType.FEATURE_LEVEL:
                check_feature_level(overlay, self._limits.feature_levels)
            of_all = of_all or record.control_type in _ABOUT_ALL
            if told:
                reading = self._reading(overlay, record, partition) if self._claims else None
                decisions.append((record.offset, Decision(outcome, reading)))
        before = self._view.applied_offset
        changes = overlay.changes()
        self._view.commit_changes(changes, applied_offset=last_offset, epoch=last_epoch)
        self._rows.committed(changes)
        self._committed(partitions, _NOWHERE if of_all else before)
        self._changed(changes, before)
        return decisions

    def _reading(
        self, rows: OverlayRows, record: CommittedRecord, partition: TopicIdPartition | None
    ) -> PartitionReading | None:
        if partition is None or record.value not in self._claims:
            return None
        state = queries.partition_state(rows, partition)
        if state is None:
            return None
        return PartitionReading(state, queries.left_overs(rows, partition))

    def _wake(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        advanced.set_result(None)


def _records_behind(log: MetadataLog, view: View) -> int:
    """The number of offsets after the newest snapshot, so that processes that do not run long make
    snapshots too.
    """
    snapshot = log.latest_snapshot()
    start = log.describe().log_start_offset if snapshot is None else snapshot.end_offset
    return max(view.applied_offset + 1 - start, 0)


def _step_end(records: Sequence[CommittedRecord], start: int, cost_max: int) -> int:
    """The end of the step from `start` on; at least one record."""
    cost = 0
    for index in range(start, len(records)):
        record = records[index]
        is_add = record.control_type is None and record.value.startswith(SEGMENT_FRONT)
        cost += 1 if is_add else COST_OF_OTHERS
        if record.control_type == ControlRecordType.SEGMENTS_IMPORTED:
            cost += len(record.value) // IMPORTED_BYTES_A_COST
        if cost >= cost_max:
            return index + 1
    return len(records)


class _Turn:
    """Awaiting it lets the event loop run everything else that is ready, once."""

    def __await__(self) -> Generator[None, None, None]:
        yield
