"""The metadata log as a port that may be slow, cut off, or silent about its outcome.

The log itself has worlds of its own (`sim/core/quorum.py`, `sim/nodes/world.py`): here a record is
committed the moment it is appended, and every node hears of it in order, some time later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kafka_formats.errors import CorruptData, InternalError, OutcomeUnknown, RetryLater
from rlmm.metadata_log import (
    CommittedGroup,
    CommittedRecord,
    LogDescription,
    Proposal,
    SnapshotId,
    SnapshotSink,
)
from rlmm.records.records import decode
from rlmm.rows.snapshot_rows import to_proposals
from sim.nodes.loop import complete

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

CLUSTER = "strandline-cluster"


class SharedLog:
    """Committed records, which every node's log hears of. `epoch` is that of the log; one that a
    snapshot began starts at `start`, with the snapshot's `rows`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch = 1
        self.start = 0
        self.rows: tuple[tuple[bytes, bytes], ...] = ()
        self.records: list[CommittedRecord] = []
        self.logs: list[NodeLog] = []

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def cluster(self) -> str:
        """The Strandline cluster's id; a restart from a snapshot begins another one."""
        return CLUSTER if self.epoch == 1 else f"{CLUSTER}-{self.epoch}"

    def restart(self, end: int, rows: tuple[tuple[bytes, bytes], ...]) -> None:
        """Begin anew with a snapshot's rows, in a later epoch; what was recorded from `end` on is
        lost.
        """
        self.epoch += 1
        self.start, self.rows = end, rows
        # A new list: a process of the lost cluster that lives on has the lost records.
        self.records = self.records[:end]

    def append(self, proposals: tuple[Proposal, ...]) -> int:
        """Commit proposals; return the offset of the first."""
        first = self.end
        for proposal in proposals:
            record = CommittedRecord(
                self.end, self.epoch, self._world.shown_ms(), proposal.control_type, proposal.value
            )
            self.records.append(record)
            self._world.auditor.committed(record)
        for log in self.logs:
            log.appended()
        return first


class NodeLog:
    """A process's end of the log: the port `rlmm.metadata_log.MetadataLog`."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._epoch = world.log.epoch
        self._records = world.log.records
        self._visible = 0
        self._due_ms = 0
        self._more = asyncio.Event()

    @property
    def is_of_lost_cluster(self) -> bool:
        """True if the cluster of this log is no more."""
        return self._epoch != self._world.log.epoch

    @property
    def _is_lost(self) -> bool:
        """True without a quorum, for good."""
        return self.is_of_lost_cluster or self._world.disaster.is_dark

    async def propose(self, proposals: tuple[Proposal, ...], *, deadline_s: float) -> int:
        world, process = self._world, self._process
        name = _name(proposals[0])
        world.lower_end.proposing(process, proposals)
        world.scenes.audit.proposing(process, proposals)
        await world.step(process, f"before {name}")
        fate = world.faults.proposal(process.machine, name)
        if fate.refused or self._is_lost:
            raise RetryLater("the metadata quorum has no leader")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not fate.lost:
            arrive = partial(self._arrive, future, proposals, fate.answer_lost, fate.twice)
            late_ms = world.delegated.rough.calls.proposal_ms(proposals)
            late_ms += world.cuts.while_recording(process, proposals)
            late_ms += world.first_looks.claim_ms(process, proposals)
            world.schedule.after(fate.delay_ms + late_ms, arrive)
        try:
            async with asyncio.timeout(deadline_s):
                offset = await future
        except TimeoutError:
            raise OutcomeUnknown(f"no answer within {deadline_s:g} s") from None
        await world.step(process, f"after {name}")
        return offset

    def _arrive(
        self,
        future: asyncio.Future[int],
        proposals: tuple[Proposal, ...],
        answer_lost: bool,
        twice: bool,
    ) -> None:
        if self.is_of_lost_cluster:
            return
        offset = self._world.log.append(proposals)
        if twice:
            self._world.log.append(proposals)
        if not answer_lost:
            delay_ms = self._world.faults.latency_ms()
            self._world.schedule.after(delay_ms, partial(complete, future, offset))

    def appended(self) -> None:
        """Schedule this node's hearing of new records."""
        end = self._world.log.end
        delay_ms = self._world.faults.latency_ms()
        self._due_ms = max(self._due_ms, self._world.schedule.now_ms + delay_ms)
        self._world.schedule.after(
            self._due_ms - self._world.schedule.now_ms, partial(self._hear, end)
        )

    def _hear(self, end: int) -> None:
        if self._process.machine.cut_off or self._process.machine.deaf or self._is_lost:
            return
        self._visible = max(self._visible, end)
        self._more.set()

    def catch_up(self) -> None:
        """Hear of everything, once connected again."""
        self._hear(self._world.log.end)

    async def follow(self, from_offset: int) -> AsyncIterator[CommittedGroup]:
        at = from_offset
        while True:
            while self._visible <= at:
                self._more.clear()
                await self._more.wait()
            end = self._visible
            records = tuple(self._records[at:end])
            at = end
            yield CommittedGroup(records, end, self._epoch)

    async def read(self, from_offset: int, *, limit: int) -> tuple[CommittedRecord, ...]:
        first = max(from_offset, self._world.log.start)
        return tuple(self._records[first : self._visible][:limit])

    async def barrier(self, *, deadline_s: float) -> int:
        fate = self._world.faults.proposal(self._process.machine, "barrier")
        if fate.refused or fate.lost or fate.answer_lost or self._is_lost:
            raise RetryLater(f"no majority answered within {deadline_s:g} s")
        await asyncio.sleep(fate.delay_ms / 1000)
        return self._world.log.end

    def latest_snapshot(self) -> SnapshotId | None:
        start = self._world.log.start
        return SnapshotId(start, self._epoch - 1) if start else None

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[Proposal]:
        if snapshot != self.latest_snapshot():
            raise InternalError(f"there is no {snapshot}")
        return to_proposals(self._world.log.rows)

    async def set_aside(self, snapshot: SnapshotId, error: CorruptData) -> bool:
        raise InternalError(f"there is no {snapshot}") from error

    async def snapshot_lost(self) -> None:
        await asyncio.Event().wait()  # there is none to lose

    async def begin_snapshot(
        self, snapshot: SnapshotId, *, last_contained_timestamp_ms: int
    ) -> SnapshotSink:
        raise InternalError(f"nobody asks for {snapshot} at {last_contained_timestamp_ms}")

    async def store_recovery_point(self) -> int:
        return self._visible

    def allow_truncation_to(self, offset: int) -> None:
        """Nothing is ever cut here."""

    def describe(self) -> LogDescription:
        start = self._world.log.start
        return LogDescription(
            "cluster", 1, 1, self._epoch, self._visible, start, self._visible, (), ()
        )

    async def close(self) -> None:
        """Nothing to do."""


def _name(proposal: Proposal) -> str:
    record = decode(proposal.control_type, proposal.value)
    state = getattr(record, "state", None)
    return type(record).__name__ if state is None else str(state.name)
