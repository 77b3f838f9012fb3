"""All partitions of this node: updated by each scan, each driven by a task."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import StrandlineError
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import NO_BACK_OFF
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.compaction_seen import CompactionSeen
from rlm.copy.hold import Hold
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_status import PartitionStatus
from rlm.copy.partition_work import HOLD_NOT_LOOKED_AT, PartitionWork
from rlm.copy.run_report import CopyRunReport, PartitionReport
from rlm.copy.scanner import PARTITIONS_PER_BREATH, Found, Look, Scanner
from rlm.copy.work_rows import RunLog
from rlm.delete.clean_up_tasks import PendingCleanUp
from rlm.leadership.leadership import Leads, NoAnswer, StandBy
from rlm.local_log.damage import Damage
from rlm.local_log.log_dir import LogDirProblem
from rlmm.partition_state import Mode
from rlmm.segment import RemoteLogSegmentMetadata

NO_LOCAL_LOG = Wait(
    WhyNot.NO_LOCAL_LOG, "this node's log directories hold no replica of the partition"
)
COMPLETE = frozenset(
    {WhyNot.NO_SEALED_SEGMENT, WhyNot.NOT_INCLUDED, WhyNot.COMPACTED, WhyNot.NOT_LEADER}
)
"""Reasons after which a one-shot run had nothing more to do for a partition."""


@dataclass(frozen=True, slots=True)
class LocalTopic:
    """A topic on this node's disks, without partitions that its brokers tier themselves. Sealed
    segments count whether or not they are copied.
    """

    topic: str
    partitions: int
    sealed_segments: int
    sealed_bytes: int


class WorkTable:
    """One row per partition of the log directories, which bound it."""

    def __init__(
        self,
        scanner: Scanner,
        driver: PartitionDriver,
        hold: Hold | None = None,
    ) -> None:
        self._hold = hold
        self._scanner = scanner
        self._looking = asyncio.Lock()
        self._looks = self._whole_look = 0
        self._last_of_some: Scanner | None = None
        self._compaction_seen = CompactionSeen(
            driver.tier.metadata, driver.around.limits.propose_deadline_s
        )
        self._driver = driver
        self._metadata = driver.tier.metadata
        self._works = driver.works
        self._look = Look((), (), ())
        self._unread: dict[tuple[str, int], LogDirProblem] = {}

    @property
    def problems(self) -> tuple[LogDirProblem, ...]:
        """Problems of the last scan."""
        return self._look.problems

    @property
    def look(self) -> Look:
        """The last scan's result."""
        return self._look

    def local_topics(self) -> tuple[LocalTopic, ...]:
        """The topics of the last scan, by name."""
        sealed: dict[str, list[list[int]]] = {}
        for found in self._look.found:
            if found.mode is Mode.SIDECAR:
                sizes = [each.size_bytes for each in found.local.segments[:-1]]
                sealed.setdefault(found.local.partition.topic, []).append(sizes)
        return tuple(
            LocalTopic(topic, len(each), sum(map(len, each)), sum(map(sum, each)))
            for topic, each in sorted(sealed.items())
        )

    def work(self, partition: TopicIdPartition) -> PartitionWork | None:
        """The row of a partition."""
        return self._works.rows.get(partition)

    def own_epochs(self, partition: TopicIdPartition) -> Epochs:
        """The leader epochs of the broker's replica, as of the last scan; empty if unknown."""
        work = self.work(partition)
        return () if work is None or work.local is None else work.local.leader_epochs

    @property
    def sees_no_disk(self) -> bool:
        """True if this node does not see the broker's disk, and the broker reports the facts of a
        claim instead.
        """
        return self._scanner.told is not None

    async def is_topic_deleted(self, partition: TopicIdPartition) -> bool:
        """True if the broker's replica was deleted with its topic; checked now on its disk and at
        the broker.
        """
        work = self.work(partition)
        local = None if work is None else work.local
        return await self._scanner.is_deleted(local, partition.topic_id)

    def works(self) -> Iterable[PartitionWork]:
        """All rows."""
        return self._works.all()

    def unread(self) -> Iterable[LogDirProblem]:
        """Problems of partitions to be tiered that have no row: their directories were unreadable
        at every scan since the start.
        """
        return self._unread.values()

    async def begin_hold(self) -> None:
        """Find the held segments, if the settings configure a hold. Refused with an instruction."""
        if self._hold is not None:
            await self._hold.begin()

    async def scan(self, *, cancel_lost: bool) -> None:
        """Scan, update the rows, and cancel work that is no longer allowed.

        One scan at a time: a second caller waits, and then gets a scan of its own.
        """
        async with self._looking:
            await self._scan(cancel_lost)

    async def look_at(self, asked: Collection[TopicIdPartition]) -> frozenset[TopicIdPartition]:
        """Look at the announced partitions `asked`, one such look at a time, while a look at all
        may be under way. Returns the partitions about which it found out enough. The rows of the
        others stay as they are; so do those of a different mode, since the hold may be using their
        files.
        """
        self._looks = number = self._looks + 1
        ended = self._scanner.announced.look_begins()
        self._last_of_some = scanner = self._scanner.of(tuple(asked), self._last_of_some)
        told = [each for each in (await scanner.look()).told_of(asked) if self._is_for_some(each)]
        if self._whole_look > number:
            return frozenset()  # a look at all that began later has ended, and knows better
        here = frozenset(found.local.partition for found in told)
        changed = [found.local.partition for found in told if self._update(found, number)]
        ended(frozenset(), here)
        if changed:
            self._metadata.on_partition_leadership_changes(changed)
        for tip in here:
            self.cancel_if_lost(self._works.rows[tip])
        return here

    def _is_for_some(self, found: Found) -> bool:
        work = self.work(found.local.partition)
        return work is None or work.mode is Mode.DELEGATED

    async def _scan(self, cancel_lost: bool) -> None:
        self._looks = number = self._looks + 1
        ended = self._scanner.announced.look_begins()
        look = await self._scanner.look()
        self._look, self._whole_look = look, number
        here = {found.local.partition for found in look.found}
        trouble = _Trouble(look.problems)
        changed = [found.local.partition for found in look.found if self._update(found, number)]
        ended(look.untold)
        if changed:
            self._metadata.on_partition_leadership_changes(changed)
        for count, (partition, work) in enumerate(list(self._works.rows.items()), 1):
            if count % PARTITIONS_PER_BREATH == 0:
                await self._scanner.breathe()
            if work.looked > number:
                continue  # a look at it alone began later
            if partition not in here:
                problem = trouble.of(work)
                if problem is not None:
                    self._unusable(work, problem)
                else:
                    self._gone(work)
            elif cancel_lost:
                self.cancel_if_lost(work)
        self._unread = self._never_read(look.problems)
        self._compaction_seen.after_look(self._works.all())
        if self._hold is not None:
            await self._hold.after_look(
                each for each in self._works.all() if not each.is_kept_by_broker
            )

    def _never_read(
        self, problems: Iterable[LogDirProblem]
    ) -> dict[tuple[str, int], LogDirProblem]:
        known = {(work.partition.topic, work.partition.partition) for work in self._works.all()}
        return {
            (each.topic, each.partition): each
            for each in problems
            if each.topic is not None
            and each.partition is not None
            and (each.topic, each.partition) not in known
            and self._scanner.topics.why_left_out(each.topic) is None
        }

    def _update(self, found: Found, number: int) -> bool:
        """Update the partition's row; True if its leadership changed since the broker's last
        answer. A row that a later scan than `number` has updated is left unchanged.
        """
        work = self._works.rows.get(found.local.partition)
        if work is None:
            work = PartitionWork(found.local.partition)
            work.hold_wait = self._hold_wait(work)
            self._works.rows[work.partition] = work
        if work.looked > number:
            return False
        work.looked = number
        before, now = work.local, found.local
        if before is not None and before.segments[0].base_offset < now.segments[0].base_offset:
            # Segments that left the log may become units in the hold pass after this scan: until
            # then they are no gap.
            work.hold_wait = self._hold_wait(work)
        work.seen(now)
        work.word = found.word
        work.left_out = found.left_out
        if work.mode is not found.mode:
            # Held segments are for this node's own copies alone.
            work.mode, work.units = found.mode, ()
            work.hold_wait = self._hold_wait(work)
        work.unusable = None
        if isinstance(work.word, NoAnswer):
            return False
        was, work.leadership = work.leadership, (isinstance(work.word, Leads), work.leader_epoch)
        return was != work.leadership

    def _hold_wait(self, work: PartitionWork) -> Wait | None:
        return None if self._hold is None or work.mode is not Mode.SIDECAR else HOLD_NOT_LOOKED_AT

    def _unusable(self, work: PartitionWork, problem: LogDirProblem) -> None:
        """Start no work for a partition whose directory exists but cannot be read now. A copy under
        way may finish: it verifies its reads and has its files open.
        """
        work.unusable = Wait(WhyNot.UNUSABLE_DIRECTORY, problem.message)
        work.word = NoAnswer(problem.message)

    def _gone(self, work: PartitionWork) -> None:
        """Stop the work of a partition whose directory is gone (deleted topic, moved replica); its
        row is removed once it has stopped.
        """
        work.seen(None)
        work.units, work.hold_wait = (), self._hold_wait(work)
        work.unusable = None
        work.word = NoAnswer(NO_LOCAL_LOG.text)
        work.wait = NO_LOCAL_LOG
        self._driver.lose_claim(work, NO_LOCAL_LOG.text)
        if work.task is not None and not work.task.done():
            work.task.cancel()
        else:
            del self._works.rows[work.partition]

    def cancel_if_lost(self, work: PartitionWork) -> None:
        """End a copy that is no longer allowed; forget the claim."""
        decision = self._driver.decision(work)
        lost = work.left_out is not None or (isinstance(decision, StandBy) and decision.cancel)
        if not lost:
            return
        text = work.left_out.text if work.left_out is not None else ""
        if isinstance(decision, StandBy):
            text = text or decision.text
            work.wait = Wait(decision.why, decision.text)
        if work.task is not None and not work.task.done():
            work.task.cancel()
        self._driver.lose_claim(work, text)

    def damage_of(self, partition: TopicIdPartition) -> Damage | None:
        """The damage that stops the partition at a segment of this node's replica."""
        return self._driver.copying.mender.of(partition)

    def is_mending(self, partition: TopicIdPartition) -> bool:
        """True while its damaged segment is surveyed and missing offsets are fetched."""
        return self._driver.copying.mender.is_mending(partition)

    def try_again(self, partition: TopicIdPartition) -> None:
        work = self._works.rows.get(partition)
        if work is not None:
            work.back_off = NO_BACK_OFF

    async def drive_all(self, *, back_offs_max: int) -> None:
        """Start a drive for every partition without one."""
        for number, work in enumerate(list(self._works.all()), 1):
            if number % PARTITIONS_PER_BREATH == 0:
                await self._scanner.breathe()
            self._drive(work, back_offs_max)

    def drive(self, partitions: Iterable[TopicIdPartition], *, back_offs_max: int) -> None:
        """Start a drive for each of these that has none."""
        for partition in partitions:
            work = self._works.rows.get(partition)
            if work is not None:
                self._drive(work, back_offs_max)

    def _drive(self, work: PartitionWork, back_offs_max: int) -> None:
        busy = work.task is not None and not work.task.done()
        kept_away = work.left_out or work.unusable
        if not busy and work.local is not None and kept_away is None:
            work.task = asyncio.create_task(
                self._driver.drive(work, back_offs_max=back_offs_max),
                name=f"drive {work.partition}",
            )

    async def drive_all_to_the_end(self, *, back_offs_max: int) -> None:
        """Drive every partition once and wait; cancellation cancels all drives."""
        try:
            await self.drive_all(back_offs_max=back_offs_max)
            await asyncio.gather(*(work.task for work in self._works.all() if work.task))
        finally:
            await self.cancel_all()

    async def cancel_all(self) -> None:
        """Cancel every drive and wait until all have ended."""
        tasks = [work.task for work in self._works.all() if work.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._compaction_seen.close()

    async def clean_up_own_attempts(self) -> None:
        """Begin the clean-up of cancelled copies, after `cancel_all`."""
        for number, work in enumerate(list(self._works.all()), 1):
            if number % PARTITIONS_PER_BREATH == 0:
                await self._scanner.breathe()
            if work.claim is None:
                continue
            try:
                await self._driver.clean_left_overs(work)
            except StrandlineError as error:
                # The next leader, here or elsewhere, finds the row at its claim.
                work.failed(error.kind, str(error), self._driver.around.ambient.now_ms())

    def status(self, partition: TopicIdPartition, now_ms: int) -> PartitionStatus | None:
        """The status page of one partition; None if unknown."""
        state = self._metadata.partition_state(partition)
        work = self._works.rows.get(partition)
        if work is None:
            if state is None:
                return None
            work = PartitionWork(partition, wait=NO_LOCAL_LOG)
            problem = self._unread.get((partition.topic, partition.partition))
            if problem is not None:
                self._unusable(work, problem)
        node_id = self._driver.around.identity.incarnation.node_id
        return work.status(state, now_ms, self._metadata.applied_offset, node_id)

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """All partitions that have a status page, by topic, partition and topic id."""
        known = set(self._works.rows) | set(self._metadata.partitions())
        return tuple(sorted(known, key=lambda each: (each.topic, each.partition, each.topic_id)))

    def statuses(self, now_ms: int) -> tuple[PartitionStatus, ...]:
        """All status pages in that order, at one moment. Slow with many partitions."""
        pages = (self.status(partition, now_ms) for partition in self.partitions())
        return tuple(page for page in pages if page is not None)

    def begin_report(self) -> ReportInTheMaking:
        """Remember attempts for a report from now on."""
        self._works.run_log = RunLog()
        return ReportInTheMaking(self, self._works.run_log)

    def left_overs(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Rows that this node has to clean up, whether or not that has begun."""
        claimed = (work.partition for work in self._works.all() if work.claim is not None)
        return tuple(row for partition in claimed for row in self._metadata.left_overs(partition))

    def partition_reports(self) -> tuple[PartitionReport, ...]:
        """The state of each partition that is not left out."""
        reports = []
        for work in self._works.all():
            if work.left_out is None:
                state = self._metadata.partition_state(work.partition)
                wait = work.unusable or work.wait
                reports.append(
                    PartitionReport(
                        partition=work.partition,
                        next_offset=state.next_offset if state is not None else -1,
                        why_not=wait.why,
                        text=wait.text,
                        complete=wait.why in COMPLETE and not work.fills_failed,
                    )
                )
        return tuple(sorted(reports, key=lambda each: each.partition))


class _Trouble:
    """Finds the problem that keeps a known partition's directory from being read."""

    def __init__(self, problems: Iterable[LogDirProblem]) -> None:
        self._by_partition: dict[tuple[str, int], LogDirProblem] = {}
        self._by_log_dir: dict[Path, LogDirProblem] = {}
        for problem in problems:
            if problem.topic is not None and problem.partition is not None:
                self._by_partition[problem.topic, problem.partition] = problem
            else:
                # The directory itself, or a file directly in it.
                self._by_log_dir[problem.path] = problem
                self._by_log_dir[problem.path.parent] = problem

    def of(self, work: PartitionWork) -> LogDirProblem | None:
        """The problem of the partition, else of the log directory it was last seen in."""
        found = self._by_partition.get((work.partition.topic, work.partition.partition))
        if found is None and work.local is not None:
            found = self._by_log_dir.get(work.local.directory.parent)
        return found


@dataclass(frozen=True, slots=True)
class ReportInTheMaking:
    """Collects a one-shot run."""

    table: WorkTable
    run_log: RunLog

    def finish(self, pending: tuple[PendingCleanUp, ...]) -> CopyRunReport:
        """The report of the run so far."""
        return CopyRunReport(
            copied=tuple(self.run_log.copied),
            failed=tuple(self.run_log.failed),
            cleaned_up=tuple(self.run_log.cleaned_up),
            pending_clean_ups=pending,
            partitions=self.table.partition_reports(),
            left_out=self.table.look.left_out_topics,
            problems=self.table.problems,
        )  # fmt: skip
