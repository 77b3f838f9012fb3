"""Finds and reports damaged segments of a node's partitions; repairs them on request or
automatically.

One run at a time. A run reads every byte of its segments; the automatic one checks only segments
that readers and scrubs reported, a few in an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import Conflict, InvalidRequest, NotFound, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import Audit, AuditAction, AuditLine
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.task_watch import Loop
from rlm.copy.mending import ReplicasPort
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_work import PartitionWork
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.node_files.scrub_results import ScrubResults
from rlm.repair.repair_looks import Looks
from rlm.repair.repair_plan import Budget, RepairAction
from rlm.repair.repair_run import (
    DamagedSegmentRepair,
    Outcome,
    RepairRequest,
    RepairRun,
    RepairState,
)
from rlm.repair.replica_gathering import DEADLINE_S, ReplicaGathering
from rlm.repair.segment_repair import GatherRoom, SegmentRepairs
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "repair"
"""The name of the directory in a node's data directory for the files gathered for copies."""

STANDING_MAX = 1_000
UNREAD_TOLD_MAX = 100
ROWS_PER_BREATH = 128

RUNS_MAX = 8
"""Limit of the runs remembered, so that a result is still found after the automatic mode began
another run.
"""


@dataclass(frozen=True, slots=True)
class RepairLimits:
    """Limits of repairs. `directory` is for files gathered for copies; `free_bytes_min` of its disk
    stay free. `automatic`: check reported segments every `interval_s`, at most `per_hour_max` in an
    hour. `replica_deadline_s` bounds the fetches from one replica for one segment.
    """

    directory: Path
    automatic: bool = False
    interval_s: float = 300.0
    per_hour_max: int = 4
    free_bytes_min: int = 1 << 30
    replica_deadline_s: float = DEADLINE_S


@dataclass(frozen=True, slots=True)
class RepairParts:
    """The parts that a repair uses. `replicas` None: there is no broker to fetch from other
    replicas.
    """

    driver: PartitionDriver
    reader: ResolvedReads
    work_of: Callable[[TopicIdPartition], PartitionWork | None]
    held_back: Callable[[str], str | None]
    audit: Audit
    scrubs: ScrubResults
    replicas: ReplicasPort | None


class Repairs:
    def __init__(self, parts: RepairParts, limits: RepairLimits) -> None:
        self._parts = parts
        self.limits = limits
        pool = parts.reader.pool
        self._segments = SegmentRepairs(
            parts.driver, pool,
            ReplicaGathering(pool, parts.replicas, limits.replica_deadline_s),
            parts.work_of, parts.held_back, parts.audit,
            GatherRoom(limits.directory, limits.free_bytes_min),
        )  # fmt: skip
        self._runs: dict[Uuid, RepairRun] = {}
        self._task: asyncio.Task[None] | None = None
        self._sweeping = asyncio.Lock()
        self._standing: dict[Uuid, DamagedSegmentRepair] = {}
        self._looks = Looks()
        self._budget = Budget()
        self.repaired = 0
        """Segments repaired by this process."""

    @property
    def unrepairable(self) -> int:
        """The number of damaged segments for which the last check found no whole copy."""
        return sum(each.outcome is Outcome.UNREPAIRABLE for each in self._standing.values())

    @property
    def damaged(self) -> int:
        """The number of damaged segments known to this node."""
        return len(self._standing.keys() | self._parts.reader.seen.seen.keys())

    # ---- on request

    def start(self, request: RepairRequest, by: str) -> RepairRun:
        """Begin a run. Conflict: one is under way. NotFound: no such partition or segment."""
        if self._task is not None and not self._task.done():
            raise Conflict(
                f"a repair is under way, {next(reversed(self._runs))}: get its result by this id, "
                "and request the new repair when it has ended",
                reason="RUNNING",
            )
        if request.topic is None and not request.from_scrub:
            raise InvalidRequest(
                "name a topic, or request the segments that scrubs and reads reported (from_scrub)",
                field="topic",
            )
        partitions = self._partitions(request)
        if (request.topic is not None or request.segment is not None) and not partitions:
            raise NotFound(f"nothing of {_asked(request)} is in the metadata")
        run = self._new_run(request, by)
        if request.apply:
            self._parts.audit(self._line(f"repair of {_asked(request)} asked for", by))
        self._task = asyncio.create_task(self._carry_out(run, partitions), name="repair segments")
        return run

    def run_of(self, id_: Uuid) -> RepairRun:
        """The run under way or one of the last ones. NotFound for any other."""
        run = self._runs.get(id_)
        if run is None:
            raise NotFound(
                f"there is no repair {id_}: the last {RUNS_MAX} are remembered, until the node "
                "stops; to continue one that had begun, request it again"
            )
        return run

    async def close(self) -> None:
        """Cancel a run under way; its unfinished copies are left-overs like any others."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for run in self._runs.values():
            if run.state is RepairState.RUNNING:
                self._ended(run, "the node stops")  # before its first step

    def _new_run(self, request: RepairRequest, by: str) -> RepairRun:
        ambient = self._parts.driver.around.ambient
        run = RepairRun(ambient.new_uuid(), request, by, ambient.now_ms())
        if len(self._runs) >= RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        self._runs[run.id] = run
        return run

    def _partitions(self, request: RepairRequest) -> list[TopicIdPartition]:
        found = [
            tip
            for tip in self._parts.driver.tier.metadata.partitions()
            if request.topic in (None, tip.topic) and request.partition in (None, tip.partition)
        ]
        if request.segment is None:
            return found
        row = self._finished(request.segment)
        return [tip for tip in found if row is not None and row.segment_id.partition == tip]

    async def _carry_out(self, run: RepairRun, partitions: list[TopicIdPartition]) -> None:
        """Carry a run out. Raises CancelledError only; the run records how it ended."""
        with self._told_in(run, "a repair failed: %s"):
            await self._sweep()
            if run.request.from_scrub or run.request.segment is not None:
                await self._look_at_named(run, set(partitions))
            else:
                for tip in partitions:
                    await self._look_at_all(run, tip)

    @contextlib.contextmanager
    def _told_in(self, run: RepairRun, log_line: str) -> Iterator[None]:
        """Record in the run how the work ended; only CancelledError passes."""
        try:
            yield
            self._ended(run)
        except asyncio.CancelledError:
            self._ended(run, "the node stops")
            raise
        except Exception as error:
            self._ended(run, str(error) or type(error).__name__)
            foreseen = isinstance(error, StrandlineError)
            logger.warning(log_line, run.text, exc_info=None if foreseen else error)

    def _ended(self, run: RepairRun, failed: str = "") -> None:
        run.state = RepairState.FAILED if failed else RepairState.FINISHED
        run.text = run.text or failed
        run.ended_at_ms = self._parts.driver.around.ambient.now_ms()

    async def _look_at_all(self, run: RepairRun, tip: TopicIdPartition) -> None:
        rows = [row async for row in self._rows(tip)]
        if rows and self._is_ours(run, tip):
            for row in rows:
                await self._look_at_segment(run, row)

    async def _look_at_named(self, run: RepairRun, partitions: set[TopicIdPartition]) -> None:
        """Check the reported segments, or the requested one."""
        request, elsewhere = run.request, set[TopicIdPartition]()
        named = self._met() if request.from_scrub else dict.fromkeys([request.segment])
        for id_ in named:
            row = None if id_ is None else self._finished(id_)
            if row is None or request.segment not in (None, id_):
                continue
            tip = row.segment_id.partition
            if tip not in partitions or tip in elsewhere:
                continue
            if self._is_ours(run, tip):
                await self._look_at_segment(run, row)
            else:
                elsewhere.add(tip)

    def _is_ours(self, run: RepairRun, tip: TopicIdPartition) -> bool:
        not_ours = self._segments.not_claimed(tip)
        if not_ours is not None:
            run.elsewhere.append(not_ours)
        return not_ours is None

    async def _rows(self, tip: TopicIdPartition) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """The finished rows of a partition."""
        rows = self._parts.driver.tier.metadata.list_remote_log_segments(tip)
        for number, row in enumerate(rows, 1):
            if number % ROWS_PER_BREATH == 0:
                await self._parts.driver.around.ambient.sleep(0)
            if row.state is SegmentState.COPY_SEGMENT_FINISHED:
                yield row

    def _finished(self, id_: Uuid) -> RemoteLogSegmentMetadata | None:
        """The row, if the segment is in the tier now."""
        row = self._parts.driver.tier.metadata.find_segment(id_)
        is_there = row is not None and row.state is SegmentState.COPY_SEGMENT_FINISHED
        return row if is_there else None

    async def _look_at_segment(self, run: RepairRun, row: RemoteLogSegmentMetadata) -> None:
        try:
            wrong = await self._segments.check(row)
        except StrandlineError as error:
            self._unread(run, row, str(error))
            return
        if wrong is None:
            if run.request.from_scrub or run.request.segment is not None:
                why = "a different RemoteStorageManager wrote it, so it can't be checked"
                self._unread(run, row, why)
            return
        run.checked += 1
        run.checked_bytes += row.size_bytes
        if self._finished(row.segment_id.id) is None:
            return
        if not wrong.wrong:
            self._is_whole(row)
            return
        told = await self._segments.mend(row, wrong, apply=run.request.apply, by=run.by)
        if told.outcome is not Outcome.REPAIRED and self._finished(row.segment_id.id) is None:
            return  # deleted while it was checked
        run.add(told)
        await self._remember(row, told)

    def _unread(self, run: RepairRun, row: RemoteLogSegmentMetadata, why: str) -> None:
        if len(run.unread) < UNREAD_TOLD_MAX:
            run.unread.append(f"{row.segment_id}: {why}")

    async def _remember(self, row: RemoteLogSegmentMetadata, told: DamagedSegmentRepair) -> None:
        if told.outcome is Outcome.REPAIRED:
            self.repaired += 1
            self._is_whole(row)
            self._looks.forget(row.segment_id.id)
            await self._parts.scrubs.forget_damage(row.segment_id.partition, row.segment_id.id)
            return
        id_ = row.segment_id.id
        before = self._standing.get(id_)
        if told.outcome is Outcome.UNREPAIRABLE and (
            before is None or before.outcome is not Outcome.UNREPAIRABLE
        ):
            logger.error("%s is damaged (%s) and %s", row.segment_id, told.wrong, told.text)
        if len(self._standing) < STANDING_MAX or before is not None:
            self._standing[id_] = told

    def _is_whole(self, row: RemoteLogSegmentMetadata) -> None:
        """Record that the objects are as uploaded. Damage that a scrub reported remains until a
        scrub clears it.
        """
        self._standing.pop(row.segment_id.id, None)
        self._parts.reader.seen.forget(row.segment_id.id)
        self._looks.found_whole(row.segment_id.id)

    async def _sweep(self) -> None:
        """Remove files gathered by a run that was killed."""
        async with self._sweeping:
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(shutil.rmtree, self.limits.directory)

    async def _sweep_at_start(self) -> None:
        """Sweep at the start, since the next run may be months away; a run that has begun sweeps
        itself.
        """
        if self._runs:
            return
        try:
            await self._sweep()
        except OSError as error:
            logger.warning(
                "files of an earlier repair in %s can't be removed (%s): remove them while "
                "no repair runs, or let the node's user do so",
                self.limits.directory, error.strerror or error,
            )  # fmt: skip

    # ---- automatic

    @property
    def loop(self) -> Loop:
        """The loop that checks reported damage from time to time."""
        return Loop("repair segments", self.run, self.problems)

    async def run(self) -> None:
        """Check reported damage every `interval_s`, for as long as the node runs."""
        await self._sweep_at_start()
        while True:
            await self._parts.driver.around.ambient.sleep(self.limits.interval_s)
            try:
                self._forget_deleted()
                if self.limits.automatic:
                    await self.run_automatically()
            except StrandlineError as error:
                logger.warning("an automatic repair could not begin, to be repeated: %s", error)

    async def run_automatically(self) -> RepairRun | None:
        """Run one pass; None: no segment is due, or a run is under way."""
        if self._task is not None and not self._task.done():
            return None
        due = self._due()
        if not due:
            return None
        run = self._new_run(RepairRequest(from_scrub=True, apply=True), "automatic repair")
        self._task = asyncio.create_task(self._automatic(run, due), name="repair segments")
        await asyncio.wait({self._task})
        return run

    async def _automatic(self, run: RepairRun, due: list[Uuid]) -> None:
        monotonic = self._parts.driver.around.ambient.monotonic
        with self._told_in(run, "an automatic repair failed, to be repeated: %s"):
            await self._sweep()
            for id_ in due:
                row = self._finished(id_)
                if row is None or not self._may_be_mended(row):
                    continue
                if not self._budget.may_begin(monotonic(), self.limits.per_hour_max):
                    run.text = "as many segments as repair.per_hour_max allows were checked"
                    break
                self._budget = self._budget.begun(monotonic())
                self._looks.begin(id_, monotonic(), self.limits.interval_s)
                await self._look_at_segment(run, row)

    def _due(self) -> list[Uuid]:
        """Reported segments that may be repaired now, in the order in which to check them."""
        now_s, seen = self._parts.driver.around.ambient.monotonic(), self._parts.reader.seen.seen
        if not self._budget.may_begin(now_s, self.limits.per_hour_max):
            return []
        due: list[Uuid] = []
        for id_ in self._looks.due(self._met(), seen, now_s):
            if len(due) > self.limits.per_hour_max:
                break  # one more than the limit is enough to show that there are more
            row = self._finished(id_)
            if row is not None and self._may_be_mended(row):
                due.append(id_)
        return due

    def _may_be_mended(self, row: RemoteLogSegmentMetadata) -> bool:
        """True if a repair of the segment is possible now. If not, a read of all its bytes is
        saved, and a part of the hour's budget.
        """
        if self._segments.not_claimed(row.segment_id.partition) is not None:
            return False
        decision = self._segments.decide(row)
        return decision.action is not RepairAction.LEAVE and decision.not_now is None

    def _met(self) -> dict[Uuid, None]:
        """Segments that readers, scrubs or runs found damaged."""
        met = dict.fromkeys((*self._parts.reader.seen.seen, *self._standing))
        for damaged in self._parts.scrubs.damage():
            met[damaged.segment_id] = None
        return met

    def _forget_deleted(self) -> None:
        """Forget damage of segments that are not in the tier any more."""
        for id_ in (*self._standing, *self._parts.reader.seen.seen):
            if self._finished(id_) is None:
                self._standing.pop(id_, None)
                self._looks.forget(id_)
                self._parts.reader.seen.forget(id_)

    def problems(self) -> tuple[NodeProblem, ...]:
        """Damage that is not repaired: reported by reads, or found by runs."""
        self._forget_deleted()
        unlooked = self._parts.reader.seen.seen.keys() - self._standing.keys()
        found = []
        if unlooked:
            first = self._parts.reader.seen.seen[next(iter(unlooked))]
            tip = first.segment_id.partition
            found.append(
                NodeProblem(
                    ProblemArea.DAMAGE,
                    None,
                    f"reads found {len(unlooked)} damaged segments, among them {first.text}: "
                    f"`strandline repair --topic {tip.topic} --partition {tip.partition}` shows "
                    "what can be done",
                )
            )
        if self._standing:
            told = next(iter(self._standing.values()))
            tip = told.segment_id.partition
            found.append(
                NodeProblem(
                    ProblemArea.DAMAGE,
                    None,
                    f"{len(self._standing)} damaged segments are not repaired, {self.unrepairable} "
                    f"of them without a whole copy anywhere, among them {told.segment_id.id} of "
                    f"{tip.topic}-{tip.partition} ({told.start_offset} to {told.end_offset}): "
                    f"{told.wrong}; {told.text}",
                )
            )
        return tuple(found)

    def _line(self, why: str, by: str) -> AuditLine:
        now_ms = self._parts.driver.around.ambient.now_ms()
        return AuditLine(now_ms, AuditAction.REPAIR, None, None, -1, -1, 0, why, by)


def _asked(request: RepairRequest) -> str:
    topic = request.topic or "all topics"
    where = topic if request.partition is None else f"{topic}-{request.partition}"
    which = "" if request.segment is None else f", segment {request.segment}"
    return f"{where}{which}" + (", reported segments only" if request.from_scrub else "")
