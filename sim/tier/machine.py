"""A machine: a broker, and a node's remote log manager built of the shipped parts.

The supervisor's part is `RemoteLogManager`, `RemoteLogMetadataManager` and the view; the worker's
`DataPlane` runs in the same process. Only log, store and broker are simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import MetaProperties, encode_meta_properties
from rlm.control.audit import AuditLine, KeepAudit
from rlm.control.run_events import CopyEvent, HoldReleased, SegmentCopied
from rlm.control.surroundings import Ambient, Identity, Surroundings
from rlm.control.task_watch import Loop
from rlm.copy.hold import Hold, HoldLimits
from rlm.copy.mending import Mender
from rlm.copy.scanner import TopicPartition
from rlm.data_plane.copy_job import CopyJob, CopyResult, OnProgress
from rlm.data_plane.data_plane import DataPlane
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.spool import Spool, SpoolLimits
from rlm.leadership.leadership import BrokerWord, LocalLogStart, NoAnswer, NotLeading, TopicConfig
from rlm.leadership.topic_filter import TopicFilter
from rlm.leadership.unseen_disk import EpochAt
from rlm.node_files.clock_file import ClockFile
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import ScrubResults
from rlm.reconcile.collector import Collector
from rlm.repair.repairs import RepairLimits, Repairs
from rlm.retention.delete_records_follower import DeleteRecordsFollower
from rlm.service import RemoteLogManager
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.manager.tombstones import KnownSegments
from rlmm.segment import Incarnation
from rsm_backends.retrying import RetryingStore, RetryPolicy
from rsm_backends.store import ObjectStore
from sim.nodes.loop import Life
from sim.nodes.view import MemoryView, ViewDisk
from sim.tier.bucket import NodeStore
from sim.tier.other_replicas import OtherReplicas
from sim.tier.shared_log import NodeLog
from sim.tier.watched_hold import FREE_BYTES_MIN, WatchedHold
from strandline.node.remote_log import Given, RemoteLogParts, build

if TYPE_CHECKING:
    from sim.tier.world import World

KAFKA_CLUSTER = "kafka-cluster"
STORE = "main"
RESTART_MS = 3_000
DOWN_MS_MAX = 60_000
RETRIES = RetryPolicy(attempts_max=3, backoff_base_s=0.1, backoff_max_s=2.0, deadline_s=20.0)


@dataclass(eq=False)
class Process:
    """One life of a node, from `began_ms` on, when the metadata log ended at `began_at`."""

    machine: Machine
    life: Life
    began_at: int
    began_ms: int
    incarnation: Incarnation
    view_disk: ViewDisk
    view: MemoryView | None = None
    log: NodeLog | None = None
    manager: RemoteLogMetadataManager | None = None
    parts: RemoteLogParts | None = None
    remote_log: RemoteLogManager | None = None
    collector: Collector | None = None
    repairs: Repairs | None = None
    follower: DeleteRecordsFollower | None = None
    audit: list[AuditLine] = field(default_factory=list)

    @cached_property
    def broker_calls(self) -> BrokerCalls:
        """The answers to the plug-in of this node's broker."""
        assert self.parts is not None
        return self.parts.new_broker_calls()


class Machine:
    """A machine; `process` is None while the node is off, `twin` a second process with its node id.
    `wall_ms` is the clock's error. `cut_off`: without the metadata log; `deaf`: heard by it, but
    not hearing it. `is_gone`: for good. `missing_bytes`: bytes that the disk lacks to have enough
    free.
    """

    def __init__(self, world: World, node_id: int, log_dir: Path) -> None:
        self.world = world
        self.node_id = node_id
        self.name = f"n{node_id}"
        self.log_dir = log_dir
        self.hold_dir = log_dir.with_name(f"{log_dir.name}-hold")
        self.mending_dir = log_dir.with_name(f"{log_dir.name}-mending")
        self.repair_dir = log_dir.with_name(f"{log_dir.name}-repair")
        self.paused_ms: int | None = None
        self.missing_bytes = 0
        self.missed_bytes_ms = -(1 << 40)
        self.boots = 0
        self.process: Process | None = None
        self.twin: Process | None = None
        self.broker_up = True
        self.is_gone = False
        self.cut_off = False
        self.deaf = False
        self.skew_ms = world.faults.skew_ms()
        self.wall_ms = 0
        self._directories = 0
        self.wipe()
        self._down_ms = world.random.choice((RESTART_MS, DOWN_MS_MAX))
        log_dir.mkdir()
        meta = MetaProperties(1, KAFKA_CLUSTER, node_id, Uuid(b"log-dir-%08d" % node_id))
        (log_dir / "meta.properties").write_bytes(encode_meta_properties(meta))

    @property
    def up(self) -> Process | None:
        """The process, once it works."""
        process = self.process
        return process if process is not None and process.remote_log is not None else None

    def now_ms(self) -> int:
        return self.world.shown_ms() + self.skew_ms + self.wall_ms

    # ---- life

    def start(self) -> None:
        if self.process is not None or self.world.disaster.is_dark or self.is_gone:
            return
        self.boots += 1
        self._boot_counter += 1
        self.process = self._begin(self._directory, self._boot_counter, self._view_disk)

    def start_twin(self) -> None:
        """Start another process with this node id and another directory."""
        self.boots += 1
        self._directories += 1
        self.twin = self._begin(self._new_directory(), 1, ViewDisk())

    def wipe(self) -> None:
        """Lose the node's disk: the next start is of one formatted anew."""
        self._directories += 1
        self._directory = self._new_directory()
        self._boot_counter = 0
        self._view_disk = ViewDisk()
        self.clock = ClockFile(None)

    def forget(self) -> None:
        """Lose the view, which the next start makes anew from the log."""
        self._view_disk = ViewDisk()

    def _new_directory(self) -> Uuid:
        return Uuid(b"quorum-%04d-%04d" % (self.node_id, self._directories))

    def _begin(self, directory: Uuid, boot_counter: int, disk: ViewDisk) -> Process:
        life = Life(f"{self.name}.{self.boots}")
        incarnation = Incarnation(self.node_id, directory, boot_counter)
        end, now_ms = self.world.log.end, self.world.schedule.now_ms
        process = Process(self, life, end, now_ms, incarnation, disk)
        self.world.loop.spawn(life, self._run(process))
        return process

    async def _run(self, process: Process) -> None:
        world = self.world
        process.view = MemoryView(
            process.view_disk,
            flushes_itself=lambda: not world.random.randrange(20),
            flushing=_nothing,
            operate=_nothing,
            committed=lambda view: world.auditor.applied(process, view),
        )
        process.log = log = NodeLog(world, process)
        world.log.logs.append(log)
        log.appended()
        try:
            process.manager = manager = await RemoteLogMetadataManager.start(
                log,
                process.view,
                incarnation=process.incarnation,
                now_ms=self.now_ms,
                monotonic=asyncio.get_running_loop().time,
                limits=world.metadata_limits,
                on_failure=lambda text: world.auditor.check(False, "no_failure", text),
            )
            remote_log = self._compose(process, manager)
            await remote_log.start()
        except StrandlineError as error:
            world.note(f"{self.name} does not start: {type(error).__name__}")
            world.schedule.after(0, partial(self.end, process))
            return
        process.remote_log = remote_log
        world.note(f"{self.name} is up")

    def _compose(self, process: Process, manager: RemoteLogMetadataManager) -> RemoteLogManager:
        world = self.world
        loop = asyncio.get_running_loop()
        ambient = Ambient(
            self.now_ms, loop.time, asyncio.sleep, world.random.random, world.new_uuid
        )
        store = RetryingStore(
            NodeStore(world, process),
            RETRIES,
            sleep=asyncio.sleep,
            random_fraction=world.random.random,
            monotonic=loop.time,
        )
        stores = TierStores({STORE: TierStore(STORE, store, world.prefix)}, STORE)
        plane = WatchedPlane(self, process, store)
        broker = NodeBroker(self)
        identity = Identity(world.log.cluster, KAFKA_CLUSTER, process.incarnation)
        around = Surroundings(identity, world.limits, ambient)
        given = Given(
            metadata=manager,
            pool=plane,
            stores=stores,
            around=around,
            log_dirs=(self.log_dir,),
            broker=broker,
            topics=TopicFilter(("*",)),
            switches=KillSwitches(None, now_ms=ambient.now_ms, audit=process.audit.append),
            clock=self.clock,
            on_event=lambda event: self._heard(process, event),
            on_shut_out=lambda text: self._shut_out(process, text),
            audit=process.audit.append,
            keep_audit=_keep(process),
            hold=self._hold(process, manager),
            mender=Mender(plane, OtherReplicas(world), self.mending_dir),
            spool=Spool(SpoolLimits(self.mending_dir / "spool"), ambient.monotonic),
        )
        process.parts = parts = build(given)
        beside = []
        if world.damage.is_on:
            limits = RepairLimits(
                self.repair_dir, automatic=True, interval_s=20.0, free_bytes_min=0
            )
            repairs = parts.new_repairs(limits, ScrubResults(None), OtherReplicas(world))
            process.repairs = repairs
            beside.append(repairs.loop)
        if world.following.is_on:
            process.follower = follower = DeleteRecordsFollower(
                parts.expirer, broker, parts.around.ambient
            )
            beside.append(Loop("follow DeleteRecords", follower.run, follower.problems))
        beside += world.absences.loops(process, around)
        assert process.log is not None
        assert process.view is not None
        known = KnownSegments(process.log, manager, process.view)
        process.collector = parts.new_collector(known, world.collector_limits)
        return parts.remote_log(beside)

    def _hold(self, process: Process, manager: RemoteLogMetadataManager) -> Hold | None:
        if not self.world.holds:
            return None
        return Hold(
            (WatchedHold(self.hold_dir, (self.log_dir,), process),),
            manager,
            HoldLimits(bytes_max=self.world.hold_bytes_max, free_bytes_min=FREE_BYTES_MIN),
            breathe=partial(asyncio.sleep, 0),
            on_event=partial(self._heard, process),
        )

    def _heard(self, process: Process, event: CopyEvent) -> None:
        if isinstance(event, SegmentCopied):
            self.world.auditor.copied(process, event)
        elif isinstance(event, HoldReleased):
            self.world.note(f"{self.name} lets {event.start} to {event.end} go: {event.why}")

    def miss_bytes(self, count: int) -> None:
        """Let the disk lack this many free bytes."""
        if self.missing_bytes:
            self.missed_bytes_ms = self.world.schedule.now_ms
        self.missing_bytes = count

    def _shut_out(self, process: Process, text: str) -> None:
        self.world.note(f"{self.name} stops: {text}")
        self.world.schedule.after(0, partial(self.end, process))

    def end(self, process: Process) -> None:
        """End a process; the node's own restarts after a while, a twin never."""
        if process is self.twin:
            self.twin = None
            self._end(process)
        elif process is self.process:
            self.kill()

    def _end(self, process: Process) -> None:
        process.life.alive = False
        self.world.loop.kill(process.life)
        if process.log in self.world.log.logs:
            self.world.log.logs.remove(process.log)

    def kill(self) -> None:
        """Kill the node's process; it restarts after a while."""
        process, self.process = self.process, None
        if process is None:
            return
        self._end(process)
        down_ms = self.world.random.randrange(self._down_ms) if self.world.faults.on else RESTART_MS
        self.world.schedule.after(down_ms, self.start)

    def pause(self) -> None:
        if self.process is not None:
            self.process.life.paused = True
            self.paused_ms = self.world.schedule.now_ms

    def resume(self) -> None:
        if self.paused_ms is not None:
            self.world.lower_end.stood_still(self.node_id, self.paused_ms)
            self.paused_ms = None
        for process in (self.process, self.twin):
            if process is not None and process.life.paused:
                self.world.loop.resume(process.life)

    def connect(self) -> None:
        """Reconnect to the metadata quorum."""
        self.cut_off = self.deaf = False
        for process in (self.process, self.twin):
            if process is not None and process.log is not None:
                process.log.catch_up()


class WatchedPlane(DataPlane):
    """The worker's part; the auditor hears of each copy."""

    def __init__(self, machine: Machine, process: Process, store: ObjectStore) -> None:
        super().__init__({STORE: store}, now_ms=machine.now_ms)
        self._machine = machine
        self._auditor = machine.world.auditor
        self._process = process

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        self._auditor.uploading(self._process, job)
        if self._machine.repair_dir in job.directory.parents:
            self._machine.world.damage.repairing(job.segment_id.id)
        scenes = self._machine.world.scenes
        try:
            await scenes.uploading(self._machine, job)
            return await super().copy(job, on_progress)
        finally:
            self._auditor.uploaded(self._process, job)
            scenes.audit.uploaded(self._machine, job)


class NodeBroker:
    """The node's own broker: the port `rlm.copy.scanner.BrokerPort`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        await self._answer("leadership")
        world = self._machine.world
        words = {each: world.brokers.word(self._machine, each) for each in partitions}
        world.lower_end.answered(self._machine.node_id, words)
        return words

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        await self._answer("local_log_start")
        self._machine.world.following.amid(partitions)
        return {
            each: self._machine.world.brokers.local_log_start(self._machine, each)
            for each in partitions
        }

    async def log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        await self._answer("log_start")
        return {
            each: self._machine.world.brokers.log_start(self._machine, each) for each in partitions
        }

    async def highest_tiered(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | NotLeading | NoAnswer]:
        await self._answer("highest_tiered")
        brokers = self._machine.world.brokers
        return {each: brokers.highest_tiered(self._machine, each) for each in partitions}

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | NoAnswer]:
        await self._answer("topic_configs")
        brokers = self._machine.world.brokers
        return {topic: brokers.topic_config(self._machine, topic) for topic in topics}

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, Uuid | NoAnswer]:
        found = {each: self._machine.world.brokers.named((each, 0)) for each in topics}
        return {
            topic: NoAnswer("it was deleted") if there is None else there.tip.topic_id
            for topic, there in found.items()
        }

    async def knows_topic(self, topic_id: Uuid) -> bool | NoAnswer:
        return not self._machine.world.brokers.with_id(topic_id).deleted

    async def knows_later_epoch(
        self, partition: TopicPartition, leader_epoch: int
    ) -> bool | NoAnswer:
        return self._machine.world.brokers.knows_later_epoch(self._machine, partition, leader_epoch)

    async def _answer(self, name: str) -> None:
        delay_ms = self._machine.world.faults.answer_ms(self._machine, name)
        delay_ms += self._machine.world.delegated.rough.calls.answer_ms()
        delay_ms += self._machine.world.first_looks.answer_ms(self._machine)
        delay_ms += self._machine.world.scenes.brokers.answer_ms(self._machine)
        await asyncio.sleep(delay_ms / 1000)


def _keep(process: Process) -> KeepAudit:
    async def keep(line: AuditLine) -> None:
        process.audit.append(line)

    return keep


def _nothing() -> None:
    pass
