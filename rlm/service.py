"""The remote log manager of one node in sidecar mode: finds, claims, copies, cleans up.

Pure planners decide, and `scanner`, `partition_driver`, `copier` and `clean_up` carry it out. They
are put together in `strandline/node/remote_log.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem
from rlm.control.surroundings import Surroundings
from rlm.control.task_watch import Loop, TaskWatch
from rlm.control.trouble_report import TroubleReport
from rlm.copy.partition_status import CopyUnderWay, PartitionStatus
from rlm.copy.run_report import CopyRunReport
from rlm.copy.work_table import LocalTopic, WorkTable
from rlm.delete.clean_up_tasks import CleanUpTasks, PendingCleanUp
from rlm.local_log.damage import Damage
from rlm.local_log.log_dir import LogDirProblem
from rlm.stores.store_checks import StoreChecks

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RemoteLogManager:
    """The remote log manager, one per node. All methods belong to the event loop it was started
    on.
    """

    around: Surroundings
    table: WorkTable
    checks: StoreChecks
    clean_ups: CleanUpTasks
    report: TroubleReport
    task_watch: TaskWatch
    loops: Sequence[Loop]
    _tasks: list[asyncio.Task[None]] = field(init=False, default_factory=list)
    _closed: bool = field(init=False, default=False)

    async def start(self) -> None:
        """Check the default store's cluster marker (later, if the store cannot be reached now),
        then begin to scan and copy.

        Refused if the store belongs to another cluster or takes no writes, or if a segment can't be
        held where the settings ask for it; then the node must not run. Other stores may be missing:
        see `node_problems`.
        """
        await self.table.begin_hold()
        checked = asyncio.Event()
        holding = asyncio.create_task(self._hold_until(checked), name="hold segments at the start")
        self._tasks = [holding]
        await self.checks.start(may_be_away=True)
        checked.set()
        loops = [asyncio.create_task(each.run(), name=each.name) for each in self.loops]
        self._tasks += loops
        self.task_watch.watch(loops)

    async def _hold_until(self, checked: asyncio.Event) -> None:
        """Scan without copying until the stores are checked: a store that fails at that moment can
        delay that for a minute, in which the broker's local retention goes on. It is not cancelled
        then: the scan's thread would still be at work beside the next scan's.
        """
        while True:
            await self.around.ambient.sleep(self.around.limits.scan_interval_s)
            if checked.is_set():
                return
            try:
                await self.table.scan(cancel_lost=False)
            except Exception as error:  # noqa: BLE001 - the scan loop reports it as a problem
                logger.warning("segments could not be held while the store is checked: %s", error)

    async def close(self) -> None:
        """Cancel copies, clean up after them as far as `shutdown_deadline_s` allows. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.table.cancel_all()
        self.clean_ups.hurry()
        deadline_s = self.around.limits.shutdown_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                # Best effort: the next run finds the rest as left-overs.
                await self.table.clean_up_own_attempts()
                await self.clean_ups.settle(self._now_ms() + round(deadline_s * 1000))
        except TimeoutError:
            logger.warning("clean-ups were not done in time; the next run finishes them")
        finally:
            await self.clean_ups.close()
            await self.checks.claims.close()

    async def run_once(self) -> CopyRunReport:
        """Do one shot instead of `start`: scan, claim, copy everything eligible, clean up, report.

        Cancelling it (Ctrl-C) leaves nothing that the next run does not finish or clean up; call
        `close` afterwards in any case.
        """
        limits = self.around.limits
        await self.checks.start()
        self.clean_ups.hurry()
        report = self.table.begin_report()
        await self.table.scan(cancel_lost=False)
        await self.table.drive_all_to_the_end(back_offs_max=limits.once_attempts_max - 1)
        wait_ms = round(limits.once_clean_up_wait_s * 1000)
        pending = await self.clean_ups.settle(self._now_ms() + wait_ms)
        told = {each.segment_id for each in pending}
        others = (row for row in self.table.left_overs() if row.segment_id not in told)
        return report.finish((*pending, *map(self.clean_ups.left_over, others)))

    def status(self, partition: TopicIdPartition) -> PartitionStatus:
        """The status page of one partition. NotFound if neither the view nor a log directory has
        it.
        """
        status = self.table.status(partition, self._now_ms())
        if status is None:
            raise NotFound(
                f"{partition} is neither in the metadata log nor in this node's log directories"
            )
        return status

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """All partitions of the view and of the log directories, by topic and partition."""
        return self.table.partitions()

    def statuses(self) -> tuple[PartitionStatus, ...]:
        """The status pages of all `partitions`, made without a pause: for a loop that serves no
        requests meanwhile.
        """
        return self.table.statuses(self._now_ms())

    def copies_under_way(self) -> tuple[CopyUnderWay, ...]:
        """The copies of this node, in no order."""
        return tuple(each.copying for each in self.table.works() if each.copying is not None)

    def removals_under_way(self) -> tuple[PendingCleanUp, ...]:
        """Segments whose objects this node is to remove: expired ones, and left-overs."""
        return self.clean_ups.pending()

    def local_topics(self) -> tuple[LocalTopic, ...]:
        """The topics on this node's disks, as of the last look."""
        return self.table.local_topics()

    def damage_of(self, partition: TopicIdPartition) -> Damage | None:
        """The damage that stops the partition at a segment of this node's replica."""
        return self.table.damage_of(partition)

    def is_mending(self, partition: TopicIdPartition) -> bool:
        """True while missing offsets of its damaged segment are asked for."""
        return self.table.is_mending(partition)

    def try_again(self, partition: TopicIdPartition) -> None:
        """End the partition's back-off now, since an admin decided something."""
        self.table.try_again(partition)

    def problems(self) -> tuple[LogDirProblem, ...]:
        """Directories and files that the last scan could not take, with the reason."""
        return self.table.problems

    def node_problems(self) -> tuple[NodeProblem, ...]:
        """Problems that keep the whole node from a part of its work; empty if there are none."""
        return self.report.problems()

    def _now_ms(self) -> int:
        return self.around.ambient.now_ms()
