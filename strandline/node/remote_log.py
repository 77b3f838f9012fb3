"""Builds the remote log manager from its parts, from the leaves to the root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.cluster_settings.follower import SettingsFollower
from rlm.cluster_settings.held_back import HeldBack
from rlm.cluster_settings.in_force import SettingsInForce
from rlm.control.audit import Audit, KeepAudit, keep_no_audit, no_audit
from rlm.control.pool_port import PoolPort
from rlm.control.run_events import CopyEvent, OnEvent, ignore_event
from rlm.control.segment_proposals import Proposals
from rlm.control.surroundings import Surroundings
from rlm.control.task_watch import Loop, TaskWatch
from rlm.control.trouble_report import Source, TroubleReport
from rlm.copy.compaction_seen import recorder
from rlm.copy.copier import Copier, no_slack
from rlm.copy.copy_slots import CopySlots
from rlm.copy.driver_parts import Brakes, Copying, Leading, Tier
from rlm.copy.hold import Hold
from rlm.copy.leadership_watch import LeadershipWatch
from rlm.copy.look_loop import LookLoop
from rlm.copy.mending import Mender, ReplicasPort
from rlm.copy.partition_driver import PartitionDriver
from rlm.copy.scanner import Breathe, BrokerPort, Scanner
from rlm.copy.stuck_partitions import StuckPartitions
from rlm.copy.told_partitions import ToldPartitions
from rlm.copy.work_rows import WorkRows
from rlm.copy.work_table import WorkTable
from rlm.delegated.asked_looks import AskedLooks
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.copied_offsets import CopiedOffsets
from rlm.delegated.copies import BrokerCopies
from rlm.delegated.deletions import BrokerDeletions
from rlm.delegated.expirations import Expirations
from rlm.delegated.failed_copies import FailedCopies
from rlm.delegated.follower_builds import FollowerBuilds
from rlm.delegated.fresh_leaders import FreshLeaders
from rlm.delegated.older_history import OlderHistory
from rlm.delegated.phase_calls import PhaseCalls
from rlm.delegated.plugin import Plugin, ignore_address
from rlm.delegated.segment_lists import SegmentLists
from rlm.delegated.segment_reads import SegmentReads
from rlm.delegated.spool import Spool
from rlm.delegated.sweeper import Sweeper
from rlm.delete.clean_up import CleanUp
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.fetch.producers_below import producers_below
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.fetch.tier_answers import Answers
from rlm.leadership.topic_filter import TopicFilter
from rlm.leadership.unseen_disk import UnseenDisk
from rlm.local_log.lost_epochs import EpochFinder
from rlm.node_files.clock_file import ClockFile
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import ScrubResults
from rlm.nodes.fenced_problems import fenced_nodes
from rlm.nodes.registration import NodeRegistrar
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import Flow
from rlm.reconcile.adoption import Adoption
from rlm.reconcile.collector import Collector, CollectorLimits, LookPort
from rlm.reconcile.erasure import Erasures
from rlm.repair.repairs import RepairLimits, RepairParts, Repairs
from rlm.retention.cut_off_times import CutOffSeen
from rlm.retention.expirer import Expirer
from rlm.retention.mark_times import MarksSeen
from rlm.retention.topic_deletion import TopicDeletion
from rlm.retention.topic_retention import ByTopicConfig, RetentionRules
from rlm.service import RemoteLogManager
from rlm.stores.clock_check import ClockCheck, ClockMemory
from rlm.stores.cluster_marker import ignore_shut_out
from rlm.stores.marker_claims import StoreClaims
from rlm.stores.store_checks import StoreChecks
from rlm.stores.tier_store import TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The parts that a remote log manager is built on.

    `topics` is the filter of the node's own settings file. `flow` None: no rate limits.
    `broker` None: log directories without a broker; this node counts as the leader of their
    partitions. `topic_retention`: if a policy sets no retention, the topic's Kafka configs apply.
    `on_shut_out` is called with the reason why the node has to stop: a store's prefix or this
    node's id was taken over.
    `unseen_disk` reports the partitions of a broker whose disk this node does not see, since it has
    no `log_dirs`; the segments that the broker sends are kept in `spool`. `on_address` is called
    with the address that the broker's plug-in announces.
    """

    metadata: RemoteLogMetadataManager
    pool: PoolPort
    stores: TierStores
    around: Surroundings
    log_dirs: Sequence[Path]
    broker: BrokerPort | None
    topics: TopicFilter
    switches: KillSwitches
    mender: Mender
    hold: Hold | None = None
    on_event: OnEvent = ignore_event
    on_shut_out: Callable[[str], None] = ignore_shut_out
    audit: Audit = no_audit
    keep_audit: KeepAudit = keep_no_audit
    flow: FlowControl | None = None
    topic_retention: bool = False
    unseen_disk: UnseenDisk | None = None
    on_address: Callable[[str], None] = ignore_address
    spool: Spool
    clock: ClockMemory = field(default_factory=lambda: ClockFile(None))


@dataclass(frozen=True, slots=True)
class RemoteLogParts:
    """The parts of a remote log manager. `task_watch` sees that a loop is alive if it sleeps with
    `around`.
    """

    given: Given
    around: Surroundings
    task_watch: TaskWatch
    checks: StoreChecks
    held_back: HeldBack
    settings: SettingsInForce
    clean_ups: CleanUpTasks
    driver: PartitionDriver
    table: WorkTable
    looks: LookLoop
    expirer: Expirer
    reads: ResolvedReads
    registrar: NodeRegistrar
    plugin: Plugin
    phases: PhaseCalls
    failed_copies: FailedCopies
    asked_looks: AskedLooks

    @property
    def answers(self) -> Answers:
        """The answers to brokers and readers."""
        given = self.given
        return Answers(
            given.metadata, self.reads, self.table, given.broker, _breathe(self.around),
            self.around.identity, self.around.limits.batch_bytes_max,
        )  # fmt: skip

    def new_broker_calls(self) -> BrokerCalls:
        """The answers to the plug-in of the node's broker."""
        given, driver = self.given, self.driver
        copies = BrokerCopies(
            given.metadata, driver.copier, given.stores, driver.slots, self.around,
            given.log_dirs, self.held_back.copying, given.spool, self.failed_copies,
        )  # fmt: skip
        ambient = self.around.ambient
        own_epochs = self.table.own_epochs
        older = OlderHistory(
            given.metadata, given.broker, self.table.work, driver.on_event, self.around
        )
        lists = SegmentLists(
            given.metadata, ambient, ambient.new_uuid(), own_epochs, self.plugin.is_left_out,
            older.led_from,
        )  # fmt: skip
        builds = FollowerBuilds(self.plugin, given.metadata, self.table.work, given.broker, ambient)
        fresh = FreshLeaders(given.metadata, self.table.work, self.around)
        expirations = Expirations(given.metadata, self.held_back.deleting, fresh, self.around)
        deletions = BrokerDeletions(
            given.metadata, self.table, driver, self.plugin, older, expirations, self.around
        )
        return BrokerCalls(
            self.plugin, given.metadata, self.table, driver, self.around, copies,
            SegmentReads(
                self.reads, own_epochs, self.plugin.why_not_read, self.asked_looks.wait,
                builds.check,
            ),
            lists, older, CopiedOffsets(given.metadata, _breathe(self.around)), self.phases,
            expirations, deletions,
        )  # fmt: skip

    def new_repairs(
        self, limits: RepairLimits, scrubs: ScrubResults, replicas: ReplicasPort | None
    ) -> Repairs:
        """The repairs of this node's partitions. Pass their loop to `remote_log`."""
        parts = RepairParts(
            self.driver, self.reads, self.table.work, self.held_back.deleting, self.given.audit,
            scrubs, replicas,
        )  # fmt: skip
        return Repairs(parts, limits)

    def new_collector(self, known: LookPort, limits: CollectorLimits) -> Collector:
        """A collector of garbage in this node's stores."""
        return Collector(
            known,
            self.given.stores,
            self.around,
            held_back=self.held_back.deleting,
            confirm_prefix=self.checks.claims.confirm,
            keep_audit=self.given.keep_audit,
            limits=limits,
        )

    def new_erasures(self, collector: Collector) -> Erasures:
        """Erasures in this node's stores; they look segments up with `collector`."""
        return Erasures(
            collector,
            self.given.metadata,
            self.given.stores,
            self.around,
            held_back=self.held_back.deleting,
            confirm_prefix=self.checks.claims.confirm,
            keep_audit=self.given.keep_audit,
        )

    def remote_log(
        self, beside: Iterable[Loop] = (), problems: Iterable[Source] = ()
    ) -> RemoteLogManager:
        """The manager itself. It also runs the loops `beside`, and reports the `problems`."""
        given, limits = self.given, self.around.limits
        watch = LeadershipWatch(
            given.broker, self.table.works, self.table.cancel_if_lost, self.looks.look,
            self.around.ambient, limits.leadership_interval_s, self.plugin,
        )  # fmt: skip
        deletion = TopicDeletion(
            given.metadata, self.clean_ups, self.around, self.held_back.deleting, given.audit
        )
        # Two followers: a scan hangs if a disk does, and rate limits must not wait for it.
        ambient = self.around.ambient
        limits_follower = SettingsFollower(given.metadata, ambient, self._hold_limits)
        looks_follower = SettingsFollower(given.metadata, ambient, self.looks.look_and_tell)
        sweeper = Sweeper(given.metadata, self.clean_ups, self.around, self.plugin.why_by_broker)
        stuck = StuckPartitions(self.around.ambient.monotonic, self.table)
        beside = tuple(beside)
        sources = (
            self.looks.problems, self.held_back.problems, stuck.problems, self.expirer.problems,
            self.clean_ups.problems, deletion.problems, given.switches.problems,
            self.plugin.problems, self.failed_copies.problems, given.spool.problems,
            self.task_watch.problems, self.registrar.problems,
            self.checks.claims.problems, lambda: fenced_nodes(given.metadata.registered_nodes()),
            *(each.problems for each in beside), *problems,
        )  # fmt: skip
        report = TroubleReport(self.around, sources, lambda: self.table.problems)
        loops = (
            Loop("scan log directories", self.looks.run),
            Loop("follow the leadership", watch.run),
            Loop("scan partitions that reads wait for", self.asked_looks.run),
            Loop("follow the cluster's rate limits", limits_follower.run),
            Loop("follow the cluster's settings", looks_follower.run),
            Loop("compare clocks", self.checks.run),
            Loop("register the node", self.registrar.run),
            Loop("expire segments", self.expirer.run),
            Loop("delete topics", deletion.run),
            Loop("end brokers' deletions", sweeper.run),
            Loop("report problems", report.run),
            *beside,
        )
        return RemoteLogManager(
            self.around, self.table, self.checks, self.clean_ups, report, self.task_watch, loops
        )

    async def _hold_limits(self) -> None:
        if self.given.flow is not None:
            self.given.flow.refresh()


def build(given: Given) -> RemoteLogParts:
    """Build the parts of a remote log manager; nothing runs yet."""
    task_watch = TaskWatch(given.around.ambient.monotonic)
    ambient = task_watch.around(given.around.ambient)
    around = replace(given.around, ambient=ambient)
    limits, metadata = around.limits, given.metadata
    claims = StoreClaims(given.stores, around, metadata, given.on_shut_out)
    clock = ClockCheck(given.stores.default, around, claims.confirm, given.clock)
    node_id = around.identity.incarnation.node_id
    settings = SettingsInForce(metadata.cluster_settings, node_id, given.topics)
    if given.flow is not None:
        given.flow.hold_over(settings.limits)
    held_back = HeldBack(metadata, given.switches, clock, settings)
    works = WorkRows(ambient.now_ms)
    plugin = Plugin(
        around,
        metadata.on_partition_leadership_changes,
        given.on_address,
        moved=lambda: metadata.migration().since >= 0,
        holds_claim=partial(_holds_claim, metadata, around.identity.incarnation),
    )
    proposals, on_event = Proposals(metadata, around), partial(_tell, works, given.on_event)
    clean_up = CleanUp(
        proposals, given.stores, around, on_event,
        asyncio.Semaphore(limits.clean_ups_parallel_max),
        held_back.deleting, claims.confirm, given.audit, given.keep_audit, plugin.why_by_broker,
    )  # fmt: skip
    clean_ups = CleanUpTasks(clean_up, works.clean_up_failed)
    reads = ResolvedReads(metadata, given.pool, given.stores)
    copier = _copier(given, proposals, on_event, claims, reads)
    registrar = NodeRegistrar(metadata, around, given.on_shut_out)
    claim_slots = asyncio.Semaphore(limits.claims_parallel_max)
    adoption = Adoption(metadata, given.stores, around, claims.confirm, clock.trouble, claim_slots)
    finder = EpochFinder(limits.epoch_batches_max, limits.scan_deadline_s)
    driver = PartitionDriver(
        works,
        Tier(metadata, given.stores, adoption, clean_ups),
        Copying(copier, _copy_slots(around), given.mender),
        Leading(given.broker, plugin, registrar.ensure, claim_slots, finder),
        Brakes(held_back.copying, settings.why_left_out, clock.trouble),
        around,
        given.on_event,
    )
    table = WorkTable(_scanner(given, around, plugin, settings), driver, given.hold)
    looks = LookLoop(table, around)
    expirer = Expirer(
        metadata, clean_ups, table.works, around, held_back.deleting, driver.lose_claim,
        given.audit, _retention_rules(given),
        MarksSeen(ambient.monotonic, metadata.measured_time_ms), CutOffSeen(ambient.monotonic),
        looks.trouble, held_back.deleting_paused,
    )  # fmt: skip
    return RemoteLogParts(
        given, around, task_watch, StoreChecks(claims, clock, around), held_back, settings,
        clean_ups, driver, table, looks, expirer, reads, registrar, plugin,
        PhaseCalls(plugin, metadata, around), FailedCopies(around),
        AskedLooks(looks.look_at, lambda tip: plugin.why_unlooked(tip) is not None, ambient),
    )  # fmt: skip


def _copier(
    given: Given, proposals: Proposals, on_event: OnEvent, claims: StoreClaims, reads: ResolvedReads
) -> Copier:
    return Copier(
        proposals=proposals,
        pool=given.pool,
        on_event=on_event,
        confirm_prefix=claims.confirm,
        record_cleaned=recorder(given.metadata, proposals.around.limits.propose_deadline_s),
        slack_of=no_slack if given.flow is None else partial(given.flow.slack_s, Flow.COPY),
        producers_below=partial(producers_below, reads),
    )


def _copy_slots(around: Surroundings) -> CopySlots:
    limits = around.limits
    return CopySlots(
        limits.copies_parallel_max,
        around.ambient.monotonic,
        per_disk_max=limits.copies_per_log_dir_max,
    )


def _scanner(
    given: Given, around: Surroundings, plugin: Plugin, topics: SettingsInForce
) -> Scanner:
    return Scanner(
        tuple(given.log_dirs), around.identity.kafka_cluster_id, given.broker, topics,
        _breathe(around), around.limits.scan_deadline_s, plugin, _told(given),
    )  # fmt: skip


def _told(given: Given) -> ToldPartitions | None:
    if given.log_dirs or given.unseen_disk is None:
        return None
    return ToldPartitions(given.unseen_disk)


def _holds_claim(
    metadata: RemoteLogMetadataManager, me: Incarnation, tip: TopicIdPartition
) -> bool:
    """True if the partition's last claim is by this process."""
    state = metadata.partition_state(tip)
    return state is not None and state.claim is not None and state.claim.incarnation == me


def _tell(works: WorkRows, on_event: OnEvent, event: CopyEvent) -> None:
    works.on_event(event)
    on_event(event)


def _breathe(around: Surroundings) -> Breathe:
    return partial(around.ambient.sleep, 0)


def _retention_rules(given: Given) -> RetentionRules:
    policy_of = given.metadata.topic_policy
    if given.broker is None or not given.topic_retention:
        return RetentionRules(policy_of)
    return ByTopicConfig(policy_of, given.broker, given.around.ambient.monotonic)
