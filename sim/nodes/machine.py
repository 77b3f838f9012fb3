"""A machine: a disk, a clock, and the process that runs on it.

The process is the metadata part of a node as `strandline/node/node.py` builds it: `QuorumLog` with
its driver, `RemoteLogMetadataManager` with the view. Only what lies below is simulated.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.control.surroundings import Ambient as NodeAmbient
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.nodes.registration import NodeRegistrar
from rlmm.log import quorum_state_file as quorum_state
from rlmm.log.quorum_records import Endpoint
from rlmm.log.quorum_state_file import QuorumState
from rlmm.log.snapshot_files import DAMAGED_SUFFIX, parse_snapshot_file_name
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import SnapshotId as StoredSnapshotId
from rlmm.metadata_log import SnapshotSink
from rlmm.quorum.config import LISTENER_NAME, Ambient, Place, QuorumConfig
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.quorum.server import DriverServer
from rlmm.raft.actions import Role
from rlmm.raft.messages import (
    NO_VOTERS,
    ReplicaKey,
    SnapshotId,
    SnapshotRead,
    Voter,
    VoterSet,
)
from rlmm.rows.feature_level import FeatureLevels
from rlmm.segment import Incarnation
from rlmm.view.view import View
from sim.ground.clock import HostClock
from sim.ground.forgetful_disk import ForgetfulDisk, PowerCut
from sim.ground.medium import Fate, Survivors
from sim.nodes.durable import LOG, METADATA
from sim.nodes.log_copy import LogCopy
from sim.nodes.loop import LIFE, Life
from sim.nodes.peers import SimulatedPeers
from sim.nodes.situations import APPLIED_DURING_FLUSH, ENDED_DURING_FLUSH, SET_ASIDE
from sim.nodes.view import MemoryView, ViewDisk

if TYPE_CHECKING:
    from sim.nodes.world import World

PORT = 9
LOOKS_MAX = 2_000
START_MS = 1_700_000_000_000
REGISTRAR_LIMITS = CopyLimits(scan_interval_s=0.5, propose_deadline_s=1.0)


class MachineDisk(ForgetfulDisk):
    """A disk where the power may go before each operation, a write or sync may fail once (the next
    finds space again), and `bad` files can't be read.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self.next_sync_fails = self.next_write_fails = False
        self.operations_left = 0
        """The disk operations left until the power goes; 0: it stays."""
        self.bad: set[Path] = set()

    def operate(self, *, grows: bool = False) -> None:
        if self._machine.world.faults.thread_waits() and not self._machine.holds_lock:
            self._machine.world.loop.let_others_run()
        if self.operations_left == 1 or self._machine.world.faults.power_goes():
            self.operations_left = 0
            raise PowerCut
        self.operations_left = max(self.operations_left - 1, 0)
        super().operate(grows=grows)
        if grows and self.next_write_fails:
            self.next_write_fails = False
            if self._machine.world.faults.space_comes_back():
                raise OSError(errno.ENOSPC, "No space left on device")
            raise OSError(errno.EIO, "Input/output error")

    def read(self, path: Path, position: int = 0, length: int | None = None) -> bytes:
        if path in self.bad:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path, position, length)

    def rename(self, old: Path, new: Path) -> None:
        self._machine.world.auditor.stored.renames(self._machine, old, new)
        runs = self._machine.process is not None and self._machine.process.log is not None
        self._machine.world.reached.note(SET_ASIDE, runs and new.name.endswith(DAMAGED_SUFFIX))
        super().rename(old, new)
        self.bad.discard(new)
        if parse_snapshot_file_name(new.name) is not None:
            self.operations_left = self._machine.world.faults.operations_after_snapshot()

    def truncate(self, path: Path, size: int) -> None:
        self._machine.world.auditor.stored.log_shrinks(self._machine, path)
        super().truncate(path, size)
        self._machine.world.auditor.recovery_point_stored(self._machine)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if path in (METADATA, LOG):
            self._machine.world.auditor.recovery_point_stored(self._machine)

    def remove(self, path: Path) -> None:
        self._machine.world.auditor.stored.log_shrinks(self._machine, path)
        self._machine.world.auditor.stored.removes(self._machine, path)
        super().remove(path)
        self.bad.discard(path)

    def list_names(self, directory: Path) -> tuple[str, ...]:
        """Stop a callback that lists over and over; only an error that nothing catches ends it."""
        world = self._machine.world
        world.loop.looks += 1
        if world.loop.looks > LOOKS_MAX:
            world.auditor.turns_in_place(self._machine)
            raise PowerCut
        return super().list_names(directory)

    def sync_fails(self) -> bool:
        self.operate()
        fails, self.next_sync_fails = self.next_sync_fails, False
        return fails


@dataclass(eq=False)
class Process:
    """A process; `manager` is set once the node is up."""

    life: Life
    incarnation: Incarnation
    level_known: int
    """Feature level of the running release; the machine's is that of the next start."""
    log: AuditedLog | None = None
    server: DriverServer | None = None
    view: MemoryView | None = None
    manager: RemoteLogMetadataManager | None = None
    registrar: NodeRegistrar | None = None
    copy: LogCopy = field(default_factory=LogCopy)
    role: Role = Role.UNATTACHED
    epoch: int = 0
    high_watermark: int = 0
    installing: SnapshotId | None = None
    generation: int = 0
    proven: bool = False


class AuditedLog(QuorumLog):
    """A log whose driver is audited from its first action on. `cuts`: it was decided what a cut
    keeps, and the cut is not over.
    """

    cuts = False

    async def _cut(self) -> None:
        self.cuts = True
        try:
            await super()._cut()
        finally:
            self.cuts = False

    async def _start(self) -> None:
        life = LIFE.get()
        assert isinstance(life, MachineLife)
        life.machine.log_opens(self)
        await super()._start()

    async def begin_snapshot(
        self, snapshot: StoredSnapshotId, *, last_contained_timestamp_ms: int
    ) -> SnapshotSink:
        sink = await super().begin_snapshot(
            snapshot, last_contained_timestamp_ms=last_contained_timestamp_ms
        )
        life = LIFE.get()
        assert isinstance(life, MachineLife)
        life.machine.world.auditor.snapshot_begun(life.machine, snapshot.end_offset)
        return sink

    def allow_truncation_to(self, offset: int) -> None:
        life = LIFE.get()
        assert isinstance(life, MachineLife)
        life.machine.world.auditor.stored.view_reaches(life.machine, offset)
        super().allow_truncation_to(offset)


@dataclass(eq=False)
class MachineLife(Life):
    machine: Machine = field(kw_only=True)


class Machine:
    """A machine; `process` is None while it is off. `excused`: its disk was made to fail, so its
    process may stop with an error. `lost`: it may have acknowledged what it no longer has.
    """

    def __init__(self, world: World, name: str, key: ReplicaKey) -> None:
        self.world = world
        self.name = name
        self.key = key
        self.clock = HostClock()
        self.wall_ms = 0
        self.boots = 0
        self.process: Process | None = None
        self.latency_ms = world.random.choice((1, 2, 2, 12))
        self.excused = False
        self.lost = False
        self.to_be_formatted = False
        self.lost_directories = set[str]()
        self.acknowledged = 0, 0
        """The epoch and end of its log that it last reported."""
        self.knows_pre_vote = True
        self.level_known = world.faults.level_known()
        self.disk = MachineDisk(self)
        self.view_disk = ViewDisk()

    # ---- who it is

    @property
    def voter(self) -> Voter:
        return Voter(self.key, (Endpoint(LISTENER_NAME, f"node-{self.key.node_id}", PORT),))

    def format_anew(self, directory_id: Uuid) -> None:
        """Replace the disk as an operator does: for the quorum this is a different replica."""
        assert self.process is None
        self.lost_directories.add(self.key.directory_id)
        self.key = ReplicaKey(self.key.node_id, str(directory_id))
        self.disk = MachineDisk(self)
        self.view_disk.wipe()
        self.boots = 0
        self.acknowledged = 0, 0
        self.excused = self.lost = self.to_be_formatted = False

    def format_again(self) -> None:
        """Lose the disk and format it as the first time. Starts count on, from the
        clock's seconds.
        """
        assert self.process is None
        self.disk = MachineDisk(self)
        self.view_disk.wipe()
        self.acknowledged = 0, 0
        self.lost = True
        self.world.auditor.forgets_its_votes(self)

    def take_back(self, process: Process) -> None:
        """Note that no leader counts any more on records that this log has lost."""
        has = process.copy.last_epoch, process.copy.end_offset
        self.acknowledged = min(self.acknowledged, has)

    def was_started_before(self) -> None:
        """Record that the log is empty because there was never a leader."""
        disk = ForgetfulDisk()
        disk.medium = self.disk.medium
        disk.make_directory(LOG)
        quorum_state.store(disk, LOG, QuorumState(0))

    @property
    def holds_lock(self) -> bool:
        """True while one of its threads may make others wait."""
        log = None if self.process is None else self.process.log
        return log is not None and log._directory._recovery_point_lock.locked()

    @property
    def leads(self) -> bool:
        return self.process is not None and self.process.role is Role.LEADER

    @property
    def up(self) -> Process | None:
        """The process, once its manager takes calls."""
        process = self.process
        return process if process is not None and process.manager is not None else None

    # ---- clocks

    def monotonic(self) -> float:
        return self.clock.at(self.world.schedule.now_ms) / 1000

    def now_ms(self) -> int:
        return START_MS + self.wall_ms + self.world.schedule.now_ms

    # ---- life

    def start(self) -> None:
        assert self.process is None
        self.boots += 1
        life = MachineLife(f"{self.name}.{self.boots}", latency_ms=self.latency_ms, machine=self)
        directory = Uuid.parse(self.key.directory_id)
        incarnation = Incarnation(self.key.node_id, directory, self.boots)
        self.process = Process(life, incarnation, self.level_known)
        self.world.loop.spawn(life, self._run(self.process))

    async def _run(self, process: Process) -> None:
        world = self.world
        process.view = view = MemoryView(
            self.view_disk,
            flushes_itself=lambda: world.faults.view_flushes_itself(),
            flushing=world.view_flushes,
            operate=self.disk.operate,
            committed=partial(self._view_changed, process),
        )
        failed = partial(self._failed, process)
        try:
            log = await AuditedLog.open(
                Place(METADATA, self.disk),
                QuorumConfig(
                    "cluster",
                    self.key,
                    NO_VOTERS if world.joins_knowing_few(self) else world.format_voters,
                    bootstrap=world.bootstrap(self),
                    settings=world.settings,
                    incarnation=self.boots,
                ),
                SimulatedPeers(world, self, process.life),
                view_flushed_end=view.flushed_offset + 1,
                ambient=Ambient(self.now_ms, self.monotonic, asyncio.sleep, world.random.random),
                on_failure=failed,
                limits=world.log_limits,
            )
            process.manager = await RemoteLogMetadataManager.start(
                log,
                view,
                incarnation=process.incarnation,
                now_ms=self.now_ms,
                monotonic=self.monotonic,
                limits=replace(
                    world.metadata_limits,
                    feature_levels=FeatureLevels(1, process.level_known),
                    node_silence_max_s=world.auditor.liveness.silence_max_s,
                ),
                on_failure=failed,
            )
            if world.auditor.liveness.on and not world.is_impostor(self):
                process.registrar = self._registrar(process, process.manager)
                world.loop.spawn(process.life, process.registrar.run())
        except StrandlineError as error:
            failed(str(error))

    def _registrar(self, process: Process, manager: RemoteLogMetadataManager) -> NodeRegistrar:
        ambient = NodeAmbient(
            self.now_ms, self.monotonic, asyncio.sleep, self.world.random.random,
            self.world.new_directory_id,
        )  # fmt: skip
        identity = Identity("cluster", None, process.incarnation)
        around = Surroundings(identity, REGISTRAR_LIMITS, ambient)
        return NodeRegistrar(manager, around, partial(self._failed, process))

    def log_opens(self, log: AuditedLog) -> None:
        """Audit a log that is recovered and not started yet."""
        process = self.process
        assert process is not None
        process.log = log
        process.server = DriverServer(log, now_ms=self.now_ms)
        # Recovery has read the log, so the audit may, even if a file can't be read since.
        bad, self.disk.bad = self.disk.bad, set()
        process.copy.read(log)
        self.disk.bad = bad
        self.world.auditor.started(self, process)
        directory: Any = log._directory
        directory.truncate_to = partial(self._truncate, directory.truncate_to)
        reads: Any = log.driver._reads
        reads.snapshot = partial(self._read_piece, reads.snapshot)
        for kind, perform in list(log.driver._perform.items()):
            log.driver._perform[kind] = partial(self._perform, process, perform)

    def _truncate(self, truncate_to: Callable[[int], None], end_offset: int) -> None:
        truncate_to(end_offset)
        self.world.auditor.stored.truncated(self, end_offset)

    def _read_piece(self, read_piece: Callable[[SnapshotRead], bytes], read: SnapshotRead) -> bytes:
        """A piece of a snapshot is read for another node."""
        self.world.rarities.piece_is_read(self, read)
        return read_piece(read)

    def _perform(self, process: Process, perform: Any, action: Any) -> None:
        if process.life.alive:
            self.world.note(self, action)
            self.world.reached.performing(self, process, action)
            self.world.auditor.performing(self, process, action)
            perform(action)
            self.world.auditor.performed(self, process, action)

    def _view_changed(self, process: Process, view: View) -> None:
        if process.life.alive:
            self.world.reached.note(APPLIED_DURING_FLUSH, process.life.halted)
            self.world.auditor.applied(self, process, view)
            process.life.busy_until_ms = self.world.schedule.now_ms + self.world.step_ms()

    def _failed(self, process: Process, message: str) -> None:
        """The process has to stop, which is an error unless its disk was tampered with."""
        if process.life.alive and self.process is process:
            self.world.stopped(self, message)

    def die(self, content: Fate, names: Fate) -> None:
        """The power goes; the fates say which unsynced writes survive."""
        if self._end():
            self.disk.medium = self.disk.medium.after_power_cut(content, names)
            self.disk.read_only = self.disk.next_sync_fails = False
            self.disk.next_write_fails = False

    def be_killed(self) -> None:
        """The process ends; the page cache stays."""
        if self._end():
            self.disk.next_sync_fails = self.disk.next_write_fails = False
            if self.disk.read_only:
                self.disk.medium = self.disk.medium.after_power_cut(Survivors.NONE, Survivors.NONE)
                self.disk.read_only = False

    def _end(self) -> bool:
        process, self.process = self.process, None
        if process is None:
            return False
        self.world.reached.note(ENDED_DURING_FLUSH, process.life.halted)
        self.world.clients.died(process)
        self.world.loop.kill(process.life)
        return True

    async def stop_in_order(self, process: Process) -> None:
        """Stop as on SIGTERM."""
        assert process.manager is not None
        assert process.log is not None
        assert process.view is not None
        try:
            if process.registrar is not None:
                await process.registrar.close()
            await process.manager.close()
            await process.log.close()
            process.view.close()
        except StrandlineError as error:
            self._failed(process, str(error))
        # A task cannot end its own life: the loop does, behind it.
        self.world.schedule.after(0, partial(self._stopped, process))

    def _stopped(self, process: Process) -> None:
        if self.process is process:
            self._end()

    # ---- being called

    def pause(self) -> None:
        if self.process is not None:
            self.process.life.paused = True

    def resume(self) -> None:
        if self.process is not None and self.process.life.paused:
            self.world.loop.resume(self.process.life)


def voters_of(machines: list[Machine]) -> VoterSet:
    return VoterSet(tuple(machine.voter for machine in machines))
