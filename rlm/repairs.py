"""Damaged segments of a node's partitions: found, told, and mended when asked to, or by itself.

One run at a time. A run reads every byte of what it looks at; the automatic one looks only at what
readers and scrubs met, and begins few in an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import Conflict, InvalidRequest, NotFound, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.audit import Audit, AuditAction, AuditLine
from rlm.node_problem import NodeProblem, ProblemArea
from rlm.partition_driver import PartitionDriver
from rlm.partition_work import PartitionWork
from rlm.repair_plan import Budget
from rlm.repair_run import (
    DamagedSegmentRepair,
    Outcome,
    RepairRequest,
    RepairRun,
    RepairState,
)
from rlm.resolved_reads import ResolvedReads
from rlm.scrub_results import ScrubResults
from rlm.segment_repair import SegmentRepairs
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState, TopicIdPartition

logger = logging.getLogger(__name__)

DIRECTORY_NAME = "repair"
"""In a node's data directory: what is gathered for a copy."""

STANDING_MAX = 1_000
UNREAD_TOLD_MAX = 100
ROWS_PER_BREATH = 128


@dataclass(frozen=True, slots=True)
class RepairLimits:
    """`directory` takes what is gathered for a copy; of its disk `free_bytes_min` stay free.
    `automatic`: every `interval_s` what readers and scrubs met is looked at, and at most
    `per_hour_max` segments are mended.
    """

    directory: Path
    automatic: bool = False
    interval_s: float = 300.0
    per_hour_max: int = 4
    free_bytes_min: int = 1 << 30


@dataclass(frozen=True, slots=True)
class RepairParts:
    """What a node's repairs are made of. `works` are its partitions."""

    driver: PartitionDriver
    reader: ResolvedReads
    works: Callable[[], Iterable[PartitionWork]]
    held_back: Callable[[str], str | None]
    audit: Audit
    scrubs: ScrubResults


class Repairs:
    """One per node."""

    def __init__(self, parts: RepairParts, limits: RepairLimits) -> None:
        self._parts = parts
        self.limits = limits
        self._segments = SegmentRepairs(
            parts.driver, parts.reader.pool, self._work_of, parts.held_back, parts.audit,
            limits.directory, limits.free_bytes_min,
        )  # fmt: skip
        self._last: RepairRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._standing: dict[Uuid, DamagedSegmentRepair] = {}
        self._as_uploaded: set[Uuid] = set()
        self._looked_at_s: dict[Uuid, float] = {}
        self._budget = Budget()
        self.repaired = 0
        """Segments that this process mended."""

    @property
    def unrepairable(self) -> int:
        """Damaged segments of which nothing has a whole copy, by the last look at each."""
        return sum(each.outcome is Outcome.UNREPAIRABLE for each in self._standing.values())

    @property
    def damaged(self) -> int:
        """Damaged segments that this node knows of and that stand."""
        return len(self._standing.keys() | self._parts.reader.seen.seen.keys())

    # ---- asked for

    def start(self, request: RepairRequest, by: str) -> RepairRun:
        """Begin a run. Conflict: one is under way. NotFound: there is no such partition."""
        if self._task is not None and not self._task.done():
            raise Conflict("a repair is under way: ask for it by its id", reason="RUNNING")
        if request.topic is None and not request.from_scrub:
            raise InvalidRequest(
                "name one, or ask for what scrubs and reads found (from_scrub)", field="topic"
            )
        partitions = self._partitions(request)
        if request.topic is not None and not partitions:
            raise NotFound(f"nothing of {_asked(request)} is in the metadata")
        run = self._new_run(request, by)
        if request.apply:
            self._parts.audit(self._line(f"repair of {_asked(request)} asked for", by))
        self._task = asyncio.create_task(self._carry_out(run, partitions), name="repair segments")
        return run

    def run_of(self, id_: Uuid) -> RepairRun:
        """The run under way or the last one. NotFound for any other."""
        if self._last is None or self._last.id != id_:
            raise NotFound(f"there is no repair {id_}: only the last one is remembered")
        return self._last

    async def close(self) -> None:
        """End a run that is under way; what it had begun is a left-over like any other."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._last is not None and self._last.state is RepairState.RUNNING:
            self._ended(self._last, "the node stops")  # before its first step

    def _new_run(self, request: RepairRequest, by: str) -> RepairRun:
        ambient = self._parts.driver.ambient
        self._last = RepairRun(ambient.new_uuid(), request, by, ambient.now_ms())
        return self._last

    def _partitions(self, request: RepairRequest) -> list[TopicIdPartition]:
        return [
            tip
            for tip in self._parts.driver.metadata.partitions()
            if request.topic in (None, tip.topic) and request.partition in (None, tip.partition)
        ]

    async def _carry_out(self, run: RepairRun, partitions: list[TopicIdPartition]) -> None:
        """Never raises but CancelledError; how it ended is in the run."""
        try:
            await self._sweep()
            for tip in partitions:
                await self._look_at(run, tip)
            self._ended(run)
        except asyncio.CancelledError:
            self._ended(run, "the node stops")
            raise
        except Exception as error:
            self._ended(run, str(error) or type(error).__name__)
            foreseen = isinstance(error, StrandlineError)
            logger.warning("a repair failed: %s", run.text, exc_info=None if foreseen else error)

    def _ended(self, run: RepairRun, failed: str = "") -> None:
        run.state = RepairState.FAILED if failed else RepairState.FINISHED
        run.text = run.text or failed
        run.ended_at_ms = self._parts.driver.ambient.now_ms()

    async def _look_at(self, run: RepairRun, tip: TopicIdPartition) -> None:
        rows = [row async for row in self._rows(run.request, tip)]
        if not rows:
            return
        not_ours = self._segments.not_claimed(tip)
        if not_ours is not None:
            run.elsewhere.append(not_ours)
            return
        for row in rows:
            await self._look_at_segment(run, row)

    async def _rows(
        self, request: RepairRequest, tip: TopicIdPartition
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """The finished ones that are to be looked at."""
        metadata = self._parts.driver.metadata
        wanted = set(self._met(tip)) if request.from_scrub else None
        if request.segment is not None:
            wanted = {request.segment} if wanted is None else wanted & {request.segment}
        for number, row in enumerate(metadata.list_remote_log_segments(tip), 1):
            if number % ROWS_PER_BREATH == 0:
                await self._parts.driver.ambient.sleep(0)
            if row.state is SegmentState.COPY_SEGMENT_FINISHED and (
                wanted is None or row.segment_id.id in wanted
            ):
                yield row

    async def _look_at_segment(self, run: RepairRun, row: RemoteLogSegmentMetadata) -> None:
        try:
            wrong = await self._segments.check(row)
        except StrandlineError as error:
            if len(run.unread) < UNREAD_TOLD_MAX:
                run.unread.append(f"{row.segment_id}: {error}")
            return
        if wrong is None:
            return
        run.checked += 1
        run.checked_bytes += row.size_bytes
        if not self._still_finished(row):
            return
        if not wrong.wrong:
            self._is_whole(row)
            return
        told = await self._segments.mend(row, wrong, apply=run.request.apply, by=run.by)
        if told.outcome is not Outcome.REPAIRED and not self._still_finished(row):
            return  # deleted while it was looked at
        run.add(told)
        await self._remember(row, told)

    def _still_finished(self, row: RemoteLogSegmentMetadata) -> bool:
        now = self._parts.driver.metadata.find_segment(row.segment_id.id)
        return now is not None and now.state is SegmentState.COPY_SEGMENT_FINISHED

    async def _remember(self, row: RemoteLogSegmentMetadata, told: DamagedSegmentRepair) -> None:
        if told.outcome is Outcome.REPAIRED:
            self.repaired += 1
            self._is_whole(row)
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
        """Its objects are what was uploaded. What a scrub says against that stands: another scrub
        has to judge the bytes themselves.
        """
        self._standing.pop(row.segment_id.id, None)
        self._parts.reader.seen.forget(row.segment_id.id)
        if len(self._as_uploaded) < STANDING_MAX:
            self._as_uploaded.add(row.segment_id.id)

    async def _sweep(self) -> None:
        """What a run that was killed had gathered."""
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self.limits.directory)

    # ---- by itself

    async def run(self) -> None:
        """Look now and then at what was met, for as long as the node runs."""
        while True:
            await self._parts.driver.ambient.sleep(self.limits.interval_s)
            self._forget_what_went()
            if self.limits.automatic:
                await self.run_automatically()

    async def run_automatically(self) -> RepairRun | None:
        """One pass; None: there is nothing to do, or a run is under way."""
        if self._task is not None and not self._task.done():
            return None
        met = [
            tip
            for tip in self._parts.driver.metadata.partitions()
            if any(id_ not in self._as_uploaded for id_ in self._met(tip))
        ]
        if not met:
            return None
        run = self._new_run(RepairRequest(from_scrub=True, apply=True), "automatic repair")
        self._task = asyncio.create_task(self._automatic(run, met), name="repair segments")
        await asyncio.wait({self._task})
        return run

    async def _automatic(self, run: RepairRun, met: list[TopicIdPartition]) -> None:
        monotonic = self._parts.driver.ambient.monotonic
        try:
            await self._sweep()
            for row in await self._in_turn(run.request, met):
                if not self._budget.may_begin(monotonic(), self.limits.per_hour_max):
                    run.text = "as many as repair.per_hour_max allows were looked at"
                    break
                self._budget = self._budget.begun(monotonic())
                self._looked_at_s[row.segment_id.id] = monotonic()
                await self._look_at_segment(run, row)
            self._ended(run)
        except Exception as error:
            self._ended(run, str(error) or type(error).__name__)
            foreseen = isinstance(error, StrandlineError)
            logger.warning(
                "an automatic repair failed, to be repeated: %s",
                run.text,
                exc_info=None if foreseen else error,
            )

    async def _in_turn(
        self, request: RepairRequest, met: list[TopicIdPartition]
    ) -> list[RemoteLogSegmentMetadata]:
        """What to look at. Never looked at comes first, then the longest ago: what can't be mended
        must not take every hour's share.
        """
        rows = [
            row
            for tip in met
            if self._segments.not_claimed(tip) is None
            async for row in self._rows(request, tip)
            if row.segment_id.id not in self._as_uploaded
        ]
        here = {row.segment_id.id for row in rows}
        self._looked_at_s = {id_: at for id_, at in self._looked_at_s.items() if id_ in here}
        return sorted(rows, key=lambda row: self._looked_at_s.get(row.segment_id.id, -math.inf))

    def _met(self, tip: TopicIdPartition) -> Iterator[Uuid]:
        """Segments of a partition that a reader or a scrub found damaged, or a run left so."""
        for damage in self._parts.reader.seen:
            if damage.segment_id.partition == tip:
                yield damage.segment_id.id
        for id_, told in self._standing.items():
            if told.segment_id.partition == tip:
                yield id_
        scrub = self._parts.scrubs.of(tip)
        if scrub is not None:
            yield from (each.segment_id for each in scrub.damage)

    def _forget_what_went(self) -> None:
        """Damage of what is not in the tier any more."""
        find = self._parts.driver.metadata.find_segment
        for id_ in (*self._standing, *self._parts.reader.seen.seen):
            row = find(id_)
            if row is None or row.state is not SegmentState.COPY_SEGMENT_FINISHED:
                self._standing.pop(id_, None)
                self._parts.reader.seen.forget(id_)

    def problems(self) -> tuple[NodeProblem, ...]:
        """Damage that stands: what readers met, and what has no whole copy anywhere."""
        self._forget_what_went()
        unlooked = self._parts.reader.seen.seen.keys() - self._standing.keys()
        found = []
        if unlooked:
            first = self._parts.reader.seen.seen[next(iter(unlooked))]
            tip = first.segment_id.partition
            found.append(
                NodeProblem(
                    ProblemArea.DAMAGE,
                    None,
                    f"reads met {len(unlooked)} damaged segments, among them {first.text}: "
                    f"`strandline repair --topic {tip.topic} --partition {tip.partition}` says "
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
                    f"{len(self._standing)} damaged segments stand, {self.unrepairable} of them "
                    f"without a whole copy anywhere, among them {told.segment_id.id} of "
                    f"{tip.topic}-{tip.partition} ({told.start_offset} to {told.end_offset}): "
                    f"{told.wrong}; {told.text}",
                )
            )
        return tuple(found)

    def _work_of(self, tip: TopicIdPartition) -> PartitionWork | None:
        return next((work for work in self._parts.works() if work.partition == tip), None)

    def _line(self, why: str, by: str) -> AuditLine:
        now_ms = self._parts.driver.ambient.now_ms()
        return AuditLine(now_ms, AuditAction.REPAIR, None, None, -1, -1, 0, why, by)


def _asked(request: RepairRequest) -> str:
    topic = request.topic or "all topics"
    where = topic if request.partition is None else f"{topic}-{request.partition}"
    which = "" if request.segment is None else f", segment {request.segment}"
    return f"{where}{which}" + (", of what was met" if request.from_scrub else "")
