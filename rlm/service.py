"""The remote log manager of one node in sidecar mode: finds, claims, copies, cleans up, answers.

Composition only: pure planners decide, and `scanner`, `partition_driver`, `copier` and `clean_up`
carry it out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import Audit, KeepAudit, keep_no_audit, no_audit
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.pool_port import PoolPort
from rlm.control.run_events import CopyEvent, OnEvent, SegmentDeleted, SegmentProgress, ignore_event
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import Ambient, Surroundings
from rlm.control.task_watch import TaskWatch
from rlm.control.trouble_report import TroubleReport
from rlm.copy.claim_outlook import ClaimOutlook, NoOutlook
from rlm.copy.compaction_seen import recorder
from rlm.copy.copier import Copier, SlackOf, no_slack
from rlm.copy.copy_slots import CopySlots
from rlm.copy.hold import Hold
from rlm.copy.leadership_watch import LeadershipWatch
from rlm.copy.mending import Mender, ReplicasPort
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.partition_status import PartitionStatus
from rlm.copy.run_report import CopyRunReport
from rlm.copy.scanner import BrokerPort, Scanner
from rlm.copy.stuck_partitions import StuckPartitions
from rlm.copy.work_table import WorkTable
from rlm.data_plane.read_request import HeldRead, RecordsEnd, RecordsRequest
from rlm.delete.clean_up import CleanUp
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.delete.held_back import HeldBack
from rlm.fetch.follower_start import FollowerFetchAnswer, FollowerFetchQuery
from rlm.fetch.leader_transition import LeaderTransitionAnswer, LeaderTransitionQuery
from rlm.fetch.list_offsets import OffsetAnswer
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.fetch.tier_answers import Answers
from rlm.format.manifest import IndexType
from rlm.leadership.node_registration import NodeRegistrar
from rlm.leadership.topic_filter import TopicFilter
from rlm.local_log.damage import Damage
from rlm.local_log.log_dir import LogDirProblem
from rlm.local_log.lost_epochs import EpochFinder
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import ScrubResults
from rlm.reconcile.adoption import Adoption
from rlm.repair.repairs import RepairLimits, RepairParts, Repairs
from rlm.retention.expirer import Expirer
from rlm.retention.topic_deletion import TopicDeletion
from rlm.retention.topic_retention import ByTopicConfig, RetentionRules
from rlm.stores.clock_check import ClockCheck
from rlm.stores.cluster_marker import confirm_prefix, ignore_shut_out
from rlm.stores.store_claims import StoreClaims
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import RemoteLogSegmentMetadata

logger = logging.getLogger(__name__)

LOOKING = "looking at the log directories"
COMPARING_CLOCKS = "comparing the clocks"
LONG_LOOK_S = 15.0


class RemoteLogManager:
    """One per node. All methods belong to the event loop it was started on."""

    def __init__(
        self,
        manager: RemoteLogMetadataManager,
        pool: PoolPort,
        stores: TierStores,
        *,
        log_dirs: Sequence[Path],
        broker: BrokerPort | None,
        topics: TopicFilter,
        around: Surroundings,
        on_event: OnEvent = ignore_event,
        on_shut_out: Callable[[str], None] = ignore_shut_out,
        audit: Audit = no_audit,
        keep_audit: KeepAudit = keep_no_audit,
        switches: KillSwitches | None = None,
        hold: Hold | None = None,
        slack_of: SlackOf = no_slack,
        topic_retention: bool = False,
        mender: Mender | None = None,
    ) -> None:
        """`broker` None: standalone directories, of which this node counts as leader.
        `topic_retention`: where a policy sets no retention, the topic's Kafka configs do.
        `mender` None: what a damaged segment lacks is asked of nobody.
        `on_shut_out` is told once a store's prefix or this node's id is another's: it has to stop.
        """
        self._metadata, self._stores = manager, stores
        self._task_watch = TaskWatch(around.ambient.monotonic)
        self._ambient = ambient = self._task_watch.around(around.ambient)
        self._around = around = replace(around, ambient=ambient)
        self._identity, self._limits = around.identity, around.limits
        self._on_event, self._on_shut_out = on_event, on_shut_out
        self._audit, self._keep_audit, self._slack_of = audit, keep_audit, slack_of
        self._switches = switches or KillSwitches(None, now_ms=ambient.now_ms, audit=audit)
        self._clock = ClockCheck(stores.default, around, self.confirm_prefix)
        self._held_back = HeldBack(manager, self._switches, self._clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._scan_error: str | None = None
        self._loops_beside: list[tuple[Callable[[], Coroutine[None, None, None]], str]] = []
        self._problem_log = log = ProblemLog(logger)
        self._look_began_s: float | None = None
        self._claims = StoreClaims(stores, around, log, manager)
        proposals = Proposals(manager, around)
        self._clean_ups = self._new_clean_ups(proposals)
        self._registrar = NodeRegistrar(manager, around, on_shut_out)
        self._mender = mender or Mender(pool)
        self._driver = self._new_driver(manager, pool, proposals, broker)
        self._topic_deletion = TopicDeletion(
            manager, self._clean_ups, around, self.delete_held_back, audit
        )
        self._hold, self._closed = hold, False
        scanner = self._new_scanner(log_dirs, broker, topics)
        self._table = WorkTable(scanner, self._driver, manager, hold)
        self._watch = self._new_watch(broker)
        self._expirer = self._new_expirer(broker if topic_retention else None)
        self._reader = ResolvedReads(manager, pool, stores)
        self._report = self._new_report()
        self._answers = Answers(
            manager, self._reader, self._table, broker, self._breathe, self._identity
        )

    def _new_report(self) -> TroubleReport:
        stuck = StuckPartitions(self._ambient.monotonic, self._table)
        parts = (
            self._held_back, stuck, self._expirer, self._clean_ups, self._topic_deletion,
            self._switches, self._task_watch, self._claims,
        )  # fmt: skip
        report = TroubleReport(self._ambient, self._limits.scan_interval_s, self.problems)
        report.include(self._look_problems, *(part.problems for part in parts))
        return report

    def _new_scanner(
        self, log_dirs: Sequence[Path], broker: BrokerPort | None, topics: TopicFilter
    ) -> Scanner:
        return Scanner(
            tuple(log_dirs), self._identity.kafka_cluster_id, broker, topics, self._breathe,
            self._limits.scan_deadline_s,
        )  # fmt: skip

    def _new_watch(self, broker: BrokerPort | None) -> LeadershipWatch:
        return LeadershipWatch(
            broker, self._table.works, self._table.cancel_if_lost, self._look, self._ambient,
            self._limits.leadership_interval_s,
        )  # fmt: skip

    def _new_clean_ups(self, proposals: Proposals) -> CleanUpTasks:
        clean_up = CleanUp(
            proposals, self._stores, self._around,
            self._clean_up_event, asyncio.Semaphore(self._limits.clean_ups_parallel_max),
            self.delete_held_back, self.confirm_prefix, self._audit, self._keep_audit,
        )  # fmt: skip
        return CleanUpTasks(clean_up, self._clean_up_failed)

    def _new_driver(
        self,
        manager: RemoteLogMetadataManager,
        pool: PoolPort,
        proposals: Proposals,
        broker: BrokerPort | None,
    ) -> PartitionDriver:
        copier = Copier(
            proposals,
            pool,
            on_event=self._copy_event,
            confirm_prefix=self.confirm_prefix,
            record_cleaned=recorder(manager, self._limits.propose_deadline_s),
            slack_of=self._slack_of,
        )
        return PartitionDriver(
            metadata=manager,
            copier=copier,
            adoption=Adoption(
                manager, self._stores, self._around, self.confirm_prefix,
            ),
            clean_ups=self._clean_ups,
            stores=self._stores,
            slots=CopySlots(
                self._limits.copies_parallel_max,
                self._ambient.monotonic,
                per_disk_max=self._limits.copies_per_log_dir_max,
            ),
            around=self._around,
            on_event=self._on_event,
            pause_text=self._held_back.copying,
            clock_trouble=self._clock.trouble,
            claim_slots=asyncio.Semaphore(self._limits.claims_parallel_max),
            broker=broker,
            register=self._registrar.ensure,
            mender=self._mender,
            epoch_finder=EpochFinder(self._limits.epoch_batches_max, self._limits.scan_deadline_s),
        )  # fmt: skip

    def _new_expirer(self, of_configs: BrokerPort | None) -> Expirer:
        policy_of = self._metadata.topic_policy
        rules = RetentionRules(policy_of)
        if of_configs is not None:
            rules = ByTopicConfig(policy_of, of_configs, self._ambient.monotonic)
        return Expirer(
            metadata=self._metadata,
            clean_ups=self._clean_ups,
            works=self._table.works,
            around=self._around,
            held_back=self.delete_held_back,
            lose_claim=self._driver.lose_claim,
            audit=self._audit,
            rules=rules,
            look_trouble=lambda: self._scan_error or self._long_look(),
        )

    async def start(self) -> None:
        """Check the default store's cluster marker (later, if the store cannot be reached now),
        then begin to scan and copy.

        Refused when it belongs to another cluster or takes no writes, or when a segment can't be
        held where that was asked for; the node must not run. The
        other stores may be missing: see `node_problems`.
        """
        if self._hold is not None:
            await self._hold.begin()
        await self._claims.start(may_be_away=True)
        await self._check_clock()
        self._tasks = [
            asyncio.create_task(self._scan_loop(), name="scan log directories"),
            asyncio.create_task(self._watch.run(), name="follow the leadership"),
            asyncio.create_task(self._clock_loop(), name="compare clocks"),
            asyncio.create_task(self._registrar.run(), name="register the node"),
            asyncio.create_task(self._expirer.run(), name="expire segments"),
            asyncio.create_task(self._topic_deletion.run(), name="delete topics"),
            asyncio.create_task(self._report.run(), name="tell problems"),
            *(asyncio.create_task(run(), name=name) for run, name in self._loops_beside),
        ]
        self._task_watch.watch(self._tasks)

    async def close(self) -> None:
        """Cancel copies, clean up after them as far as `shutdown_deadline_s` allows. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._table.cancel_all()
        self._clean_ups.hurry()
        try:
            async with asyncio.timeout(self._limits.shutdown_deadline_s):
                # Best effort: what is not reached now is a left-over that the next run finds.
                await self._table.clean_up_own_attempts()
                await self._clean_ups.settle(
                    self._ambient.now_ms() + round(self._limits.shutdown_deadline_s * 1000)
                )
        except TimeoutError:
            logger.warning("clean-ups were not done in time; the next run finishes them")
        finally:
            await self._clean_ups.close()
            await self._claims.close()

    async def run_once(self) -> CopyRunReport:
        """One shot instead of `start`: scan, claim, copy everything eligible, clean up, report.

        Cancelling it (Ctrl-C) leaves nothing that the next run does not finish or clean up; call
        `close` afterwards in any case.
        """
        await self._claims.start()
        await self._check_clock()
        self._clean_ups.hurry()
        report = self._table.begin_report()
        await self._table.scan(cancel_lost=False)
        await self._table.drive_all_to_the_end(back_offs_max=self._limits.once_attempts_max - 1)
        wait_ms = round(self._limits.once_clean_up_wait_s * 1000)
        pending = await self._clean_ups.settle(self._ambient.now_ms() + wait_ms)
        told = {each.segment_id for each in pending}
        others = (row for row in self._table.left_overs() if row.segment_id not in told)
        return report.finish((*pending, *map(self._clean_ups.left_over, others)))

    @property
    def ambient(self) -> Ambient:
        """For loops that run beside: who sleeps by it is known to be alive."""
        return self._ambient

    @property
    def switches(self) -> KillSwitches:
        """The kill switches of this node: copying, deleting."""
        return self._switches

    @property
    def expirer(self) -> Expirer:
        """Retention: its plans, its brakes, and a pass of it."""
        return self._expirer

    @property
    def scan_error(self) -> str | None:
        """Why the last look at the log directories failed as a whole; None when it did not."""
        return self._scan_error

    def status(self, partition: TopicIdPartition) -> PartitionStatus:
        """Where one partition stands. NotFound if neither the view nor a log directory has it."""
        status = self._table.status(partition, self._ambient.now_ms())
        if status is None:
            raise NotFound(
                f"{partition} is neither in the metadata log nor in this node's log directories"
            )
        return status

    def partitions(self) -> tuple[TopicIdPartition, ...]:
        """All partitions of the view and of the log directories, by topic and partition."""
        return self._table.partitions()

    def statuses(self) -> tuple[PartitionStatus, ...]:
        """Where each of `partitions` stands, in one go: for who serves nobody meanwhile."""
        return self._table.statuses(self._ambient.now_ms())

    def damage_of(self, partition: TopicIdPartition) -> Damage | None:
        """What a damaged segment that stops the partition here lacks."""
        return self._mender.of(partition)

    def try_again(self, partition: TopicIdPartition) -> None:
        """Without the rest of its back-off: an admin decided something."""
        self._table.try_again(partition)

    def problems(self) -> tuple[LogDirProblem, ...]:
        """What the last scan could not take, with the reason."""
        return self._table.problems

    def node_problems(self) -> tuple[NodeProblem, ...]:
        """What keeps the node as a whole from a part of its work; empty when nothing does."""
        return self._report.problems()

    def _look_problems(self) -> Iterator[NodeProblem]:
        look = self._scan_error or self._long_look()
        if look is not None:
            yield NodeProblem(ProblemArea.LOG_DIRS, None, look)

    def _long_look(self) -> str | None:
        """A disk that hangs is told long before the look's deadline."""
        began_s = self._look_began_s
        if began_s is None or self._ambient.monotonic() - began_s < LONG_LOOK_S:
            return None
        return f"a look at them has lasted for more than {LONG_LOOK_S:g} s: does a disk hang?"

    def run_beside(self, run: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        """`start` begins this too, and `close` ends it."""
        self._loops_beside.append((run, name))

    def tell_problems_of(self, *beside: Callable[[], Iterable[NodeProblem]]) -> None:
        """`node_problems` includes from now on what other parts of the node have to say."""
        self._report.include(*beside)

    def new_repairs(
        self, limits: RepairLimits, scrubs: ScrubResults, replicas: ReplicasPort | None
    ) -> Repairs:
        """Of this node's partitions; `start` begins what they do by themselves."""
        parts = RepairParts(
            self._driver, self._reader, self._table.work, self.delete_held_back, self._audit,
            scrubs, replicas,
        )  # fmt: skip
        repairs = Repairs(parts, limits)
        self.run_beside(repairs.run, "repair segments")
        self.tell_problems_of(repairs.problems)
        return repairs

    async def leader_transition(self, query: LeaderTransitionQuery) -> LeaderTransitionAnswer:
        """Where a new leader goes on copying (design 6.6). Read-only."""
        return self._answers.leader_transition(query)

    def claim_outlook(self, partition: TopicIdPartition) -> ClaimOutlook | NoOutlook:
        """What this node's next claim of it would do, as things are and after a reset."""
        return self._answers.claim_outlook(partition)

    async def follower_fetch(self, query: FollowerFetchQuery) -> FollowerFetchAnswer:
        """What a follower needs to rebuild from the tier (design 6.6, KIP-405)."""
        return await self._answers.follower_fetch(query)

    async def offsets(self, partition: TopicIdPartition, timestamp: int) -> OffsetAnswer:
        """ListOffsets: one of `list_offsets.OffsetSpec`, or a time in ms since the epoch.

        A time that no tiered record reaches is answered with offset -1: the broker has the rest.
        """
        return await self._answers.offsets(partition, timestamp)

    def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Verified bytes [start, end) of a finished segment's `.log`; NotFound at first step."""
        return self._reader.open_log(segment_uuid, start, end)

    def hold_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None
    ) -> AbstractAsyncContextManager[HeldRead]:
        """The same bytes, to be sent to a client's own connection by whoever reads them."""
        return self._reader.hold_log(segment_uuid, start, end)

    def open_index(self, segment_uuid: Uuid, index: IndexType) -> AsyncIterator[bytes]:
        """Verified bytes of one index; NotFound at the first step if the segment has none."""
        return self._reader.open_index(segment_uuid, index)

    def records(
        self,
        partition: TopicIdPartition,
        request: RecordsRequest,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        """Stored batches, or JSON lines, from an offset on, across segment borders.

        InvalidRequest(offset) below the log start, NotFound above the highest copied offset or in
        a lost range, all at the first step.
        """
        return self._reader.records(partition, request, on_end)

    async def confirm_prefix(self, tier: TierStore) -> None:
        """Refused once the store's prefix is another cluster's; asked before writes and deletes.

        RetryLater while it is not known whose the prefix is.
        """
        self._claims.check(tier.name)
        await confirm_prefix(
            tier,
            self._identity,
            deadline_s=self._limits.store_deadline_s,
            on_shut_out=self._on_shut_out,
        )

    async def _look(self) -> None:
        self._look_began_s = self._ambient.monotonic()
        try:
            await self._table.scan(cancel_lost=True)
        finally:
            self._look_began_s = None
        await self._table.drive_all(back_offs_max=1)

    async def _scan_loop(self) -> None:
        while True:
            try:
                await self._look()
                self._scan_error = None
                self._problem_log.works(LOOKING)
            except Exception as error:  # noqa: BLE001 - told and logged below
                # The loop outlives every look that fails: a directory may come back.
                self._scan_error = str(error) or type(error).__name__
                self._problem_log.failed(LOOKING, error)
            await self._ambient.sleep(self._limits.scan_interval_s)

    async def _clock_loop(self) -> None:
        """Beside the scans: a store that does not answer must not keep them from being made."""
        while True:
            await self._ambient.sleep(self._limits.scan_interval_s)
            try:
                await self._check_clock()
                self._problem_log.works(COMPARING_CLOCKS)
            except Exception as error:  # noqa: BLE001 - told and logged below
                self._clock.is_unknown(f"the clocks could not be compared: {error}")
                self._problem_log.failed(COMPARING_CLOCKS, error)

    async def _check_clock(self) -> None:
        # The first time, the markers were looked at a moment ago.
        if await self._clock.compare_if_due():
            await self._claims.look_again(self.confirm_prefix)

    async def _breathe(self) -> None:
        await self._ambient.sleep(0)

    def delete_held_back(self, topic: str) -> str | None:
        """Why nothing of the topic may be deleted now; None when it may."""
        return self._held_back.deleting(topic)

    def _copy_event(self, event: CopyEvent) -> None:
        if isinstance(event, SegmentProgress):
            self._table.progressed(event)
        self._on_event(event)

    def _clean_up_event(self, event: CopyEvent) -> None:
        if isinstance(event, SegmentDeleted):
            self._table.cleaned_up(event.segment_id)
        self._on_event(event)

    def _clean_up_failed(self, row: RemoteLogSegmentMetadata, kind: str, text: str) -> None:
        self._table.clean_up_failed(row, kind, text, self._ambient.now_ms())
