"""A quorum of whole nodes with faults and clients, then healing."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from rlmm.log.log_limits import LogLimits
from rlmm.manager.metadata_limits import MetadataLimits
from rlmm.raft.messages import ReplicaKey
from rlmm.raft.timers import RaftSettings
from rlmm.rows.nodes import find_node
from rlmm.view.view import digest_of
from sim.core.invariants import InvariantError
from sim.core.network import Network
from sim.core.quorum import HASTY
from sim.ground.clock import Schedule
from sim.nodes.clients import Clients
from sim.nodes.durable import snapshots
from sim.nodes.faults import Faults
from sim.nodes.forks import Forks
from sim.nodes.invariants import Auditor, compact
from sim.nodes.loop import Life, VirtualLoop, silence
from sim.nodes.machine import PORT, Machine, MachineLife, voters_of
from sim.nodes.operators import Operators
from sim.nodes.rarities import Rarities
from sim.nodes.situations import Reached
from sim.nodes.view import memory_batches

if TYPE_CHECKING:
    from sim.nodes.machine import Process

HEAL_MS = 90_000
OPERATOR_MS = 20_000
PROVE_EVERY_MS = 300
"""Longest healing, the time when the operator accepts cuts, and the pause between probes of each
node.
"""


LEVEL_RAISED = 2
"""Feature level that some worlds raise to, where some programs do not know it."""


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of a run; `events` are actions carried out, messages, jobs of executors, calls."""

    seed: int
    events: int
    world_ms: int
    committed: int
    accepted: int
    done: int
    refused: int
    unknown: int
    reads: int
    epoch: int
    heal_ms: int
    trace: int
    situations: tuple[tuple[str, int], ...]
    """Number of times that each rare situation was reached."""


class World:
    """The world of one seed. `trace` collects what happens, as text, if given."""

    def __init__(self, seed: int, *, trace: list[str] | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace = trace
        self.trace_digest = 0
        self.events = 0
        self.schedule = Schedule()
        self.loop = VirtualLoop(
            self.schedule, self.random, on_power_cut=self._power_cut, on_job=self._job
        )
        self.network = Network(self.schedule, self.random)
        self._draw_settings()
        self.reached = Reached()
        self.auditor = Auditor(self)
        self.faults = Faults(self)
        self.rarities = Rarities(self)
        self.forks = Forks(self)
        self.machines: list[Machine] = []
        self._directories = 0
        self._format()
        self.clients = Clients(self)
        self.operators = Operators(self)
        self._snapshots: dict[str, bytes] = {}
        self._steps = Random(f"steps of {seed}")
        self._step_ms_max = self._steps.choice((0, 10))
        self._flushes = Random(f"flushes of {seed}")
        self._flush_ms_max = self._flushes.choice((0, 20, 500))
        self.loop.jobs_halt = self._flush_ms_max > 0

    def _draw_settings(self) -> None:
        choose = self.random.choice
        fetch_bytes_max = choose((300, 5000, 1 << 20))
        snapshot_bytes_max = choose((100, 2000, 1 << 20))
        self.settings = replace(
            choose((HASTY, HASTY, RaftSettings(caught_up_within_ms=5000))),
            fetch_bytes_max=fetch_bytes_max,
            fetch_snapshot_bytes_max=snapshot_bytes_max,
        )
        self.log_limits = LogLimits(
            segment_bytes_max=choose((700, 3000, 1 << 20)),
            retain_bytes_max=choose((0, 2000, 1 << 20)),
            snapshots_kept=choose((1, 2)),
            recent_bytes_max=choose((0, 1000, 1 << 20)),
            read_bytes_max=choose((500, 1 << 18)),
            recovery_point_interval_s=choose((0.05, 1.0)),
        )
        self.metadata_limits = MetadataLimits(
            apply_cost_max=choose((1, 30)),
            view_flush_records=choose((3, 20, 10_000)),
            snapshot_records=choose((15, 60, 100_000)),
            snapshot_slice_rows=choose((2, 100)),
        )
        self.voter_count = choose((3, 3, 3, 5))
        self._few_records_stay(Random(f"short logs of {self.seed}"))

    def _few_records_stay(self, random: Random) -> None:
        """Cut the log so often, in some worlds, that replicas need snapshots."""
        self.log_is_short = random.randrange(2) == 0
        if not self.log_is_short:
            return
        self.settings = replace(
            self.settings,
            fetch_bytes_max=300,
            fetch_snapshot_bytes_max=random.choice((100, 300, 2000)),
        )
        self.log_limits = replace(
            self.log_limits,
            segment_bytes_max=700,
            retain_bytes_max=random.choice((0, 2000)),
            snapshots_kept=random.choice((1, 2, 2)),
        )
        self.metadata_limits = replace(
            self.metadata_limits, view_flush_records=3, snapshot_records=random.choice((5, 15, 30))
        )

    def _format(self) -> None:
        for node_id in range(1, self.voter_count + 2):
            key = ReplicaKey(node_id, str(self.new_directory_id()))
            self.machines.append(Machine(self, f"n{node_id}", key))
        self.format_voters = voters_of(self.machines[: self.voter_count])
        # A quorum that never ran waits for all, which under faults may take the whole run.
        if self.random.randrange(8):
            for machine in self.machines:
                machine.was_started_before()
        if "impostor" in self.faults.kinds:
            key = ReplicaKey(2, str(self.new_directory_id()))
            self.machines.append(Machine(self, "impostor", key))

    def bootstrap(self, machine: Machine) -> tuple[tuple[int, str, int], ...]:
        """Nodes to ask for the leader; in some worlds only two, until the log or an answer names
        more.
        """
        first = [each.node_id for each in self.format_voters.keys]
        if self.joins_knowing_few(machine):
            at = machine.key.node_id
            first = [node_id for node_id in (*first[at:], *first) if node_id != at][:2]
        return tuple((node_id, f"node-{node_id}", PORT) for node_id in first)

    def joins_knowing_few(self, machine: Machine) -> bool:
        """True if it was formatted to join, knowing few addresses."""
        founding = machine.key in self.format_voters.keys
        return "few_addresses" in self.faults.kinds and not founding

    def new_directory_id(self) -> Uuid:
        self._directories += 1
        return Uuid(b"directory-%06d" % self._directories)

    def step_ms(self) -> int:
        """Time that a step of applying keeps a node's event loop busy."""
        return self._steps.randrange(self._step_ms_max + 1)

    def view_flushes(self) -> None:
        """A flush of a view is under way: everything else goes on for a while."""
        if self._flush_ms_max:
            self.loop.halt(self._flushes.randrange(self._flush_ms_max + 1))

    def is_impostor(self, machine: Machine) -> bool:
        """A second machine with the node id of another."""
        return machine.name == "impostor"

    def resolve(self, host: str) -> Machine:
        """The machine behind a name; with an impostor, sometimes the wrong one."""
        named = [each for each in self.machines if f"node-{each.key.node_id}" == host]
        return named[0] if len(named) == 1 or self.random.randrange(10) else named[-1]

    def voter_sets_in_force(self) -> list[tuple[ReplicaKey, ...]]:
        """The last committed voter set, and every one ever written behind it."""
        last, found = self.format_voters.keys, set()
        for (offset, epoch), keys in sorted(self.auditor.voter_sets.items()):
            batch = self.auditor.committed.get(offset)
            if batch is not None and batch.epoch == epoch:
                last = keys
            elif offset >= self.auditor.committed_end:
                found.add(keys)
        return sorted(found | {last})

    # ---- what happens

    def note(self, machine: Machine, what: object) -> None:
        """Count and record an event; equal seeds have equal traces."""
        self.events += 1
        if self.trace is not None:
            line = f"{self.schedule.now_ms:>7} {machine.name} {compact(what)}"
            self.trace_digest = zlib.crc32(line.encode(), self.trace_digest)
            self.trace.append(line)

    def message(self, target: Machine) -> None:
        self.note(target, "message")

    def asked(self, process: Process) -> None:
        life = process.life
        assert isinstance(life, MachineLife)
        self.note(life.machine, "call")

    def _job(self, life: Life | None) -> None:
        assert isinstance(life, MachineLife)
        self.note(life.machine, "job")

    def _power_cut(self, life: Life) -> None:
        assert isinstance(life, MachineLife)
        self.note(life.machine, "power cut")
        self.faults.cut_power(life.machine)

    def stopped(self, machine: Machine, message: str) -> None:
        """A process stops with an error: allowed only after its disk failed, at an unknown level,
        or if a late registration of its machine's lost directory has taken the node id.
        """
        self.note(machine, f"stopped: {message}")
        assert machine.process is not None
        if machine.process.level_known < self.auditor.reference.level:
            machine.level_known = LEVEL_RAISED  # the operator installs the new release
        elif not machine.excused and not self._is_overtaken(machine):
            self.auditor.unexcused(machine, message)
        process = machine.process

        def end() -> None:
            if machine.process is process:
                machine.be_killed()
                if machine.lost:
                    self.operators.replace_disk(machine)
                self.faults.start_soon(machine)

        self.schedule.after(0, end)

    def _is_overtaken(self, machine: Machine) -> bool:
        node = find_node(self.auditor.reference.rows, machine.key.node_id)
        return node is not None and str(node.directory_id) in machine.lost_directories

    # ---- running

    def run(self, events: int) -> Result:
        """Run `events` with faults, then heal: each node writes and reads in time, all
        are equal.
        """
        with self.loop.running(), memory_batches(), silence(self.loop.failures):
            try:
                for machine in self.machines:
                    machine.start()
                self.faults.begin()
                self.rarities.begin()
                self.forks.begin()
                self.clients.begin()
                self.operators.begin()
                while self.events < events and self._turn():
                    pass
                heal_ms = self._heal()
            finally:
                for machine in self.machines:
                    if machine.process is not None:
                        self.loop.kill(machine.process.life)
        clients = self.clients
        return Result(
            self.seed,
            self.events,
            self.schedule.now_ms,
            self.auditor.committed_end,
            self.auditor.reference.accepted,
            clients.done,
            clients.refused,
            clients.unknown,
            clients.reads,
            max(machine.process.epoch for machine in self.machines if machine.process),
            heal_ms,
            self.trace_digest,
            tuple(sorted(self.reached.times.items())),
        )

    def _turn(self) -> bool:
        went_on = self.loop.turn()
        if self.auditor.violation is not None:
            raise self.auditor.violation
        if self.loop.failures:
            raise InvariantError("nothing_unhandled", self.loop.failures[0])
        return went_on

    def _heal(self) -> int:
        self.faults.stop()
        self.rarities.stop()
        self.forks.stop()
        self._step_ms_max = self._flush_ms_max = 0
        self.clients.on = self.operators.on = False
        began_ms = self.schedule.now_ms
        next_try_ms, accepted = began_ms, False
        for machine in self.machines:
            if machine.process is not None:
                machine.process.proven = False
        while self.schedule.now_ms < began_ms + HEAL_MS and self._turn():
            now_ms = self.schedule.now_ms
            if now_ms < next_try_ms:
                continue
            next_try_ms = now_ms + PROVE_EVERY_MS
            unproven = [m for m in self._members() if m.up is None or not m.up.proven]
            all_live = self.auditor.liveness.all_live(self._members(), self.auditor.reference)
            if not unproven and all_live and self._all_equal():
                silent_ms = self.faults.one_falls_silent()
                if not silent_ms:
                    return now_ms - began_ms
                next_try_ms += silent_ms
            for machine in unproven:
                self.clients.prove_alive(machine)
            if now_ms > began_ms + OPERATOR_MS and not accepted:
                accepted = True
                self.operators.accept_cuts()
        raise InvariantError("liveness", f"not healed within {HEAL_MS} ms: {self._summary()}")

    def _members(self) -> list[Machine]:
        """The machines but the impostor, which can't follow a leader of its own node id."""
        return [machine for machine in self.machines if not self.is_impostor(machine)]

    def _all_equal(self) -> bool:
        end = self.auditor.committed_end
        views = [machine.up.view for machine in self._members() if machine.up is not None]
        if any(view is None or view.applied_offset != end - 1 for view in views):
            return False
        rows = self.auditor.reference.rows.items()
        if not all(self.auditor.stored.has_its_snapshots(each) for each in self._members()):
            return False  # it hears in a moment what was removed, or the next look fails
        for machine in self._members():
            view = machine.up.view if machine.up is not None else None
            assert view is not None
            self.auditor.check(
                view.all_rows() == rows
                and view.digest() == digest_of(rows)
                and view.told_offset == view.applied_offset,
                "same_offset_same_state",
                f"{machine.name} has other rows at {end - 1}",
            )
            assert machine.up is not None
            self.auditor.tells_its_rows(machine, machine.up, view)
            if not machine.lost:
                self._equal_snapshots(machine)
        return True

    def _equal_snapshots(self, machine: Machine) -> None:
        """Check that snapshots at an offset are byte-identical on every node."""
        for name, content in snapshots(machine.disk.medium).items():
            known = self._snapshots.setdefault(name, content)
            self.auditor.check(
                known == content, "same_offset_same_state", f"{machine.name} has another {name}"
            )

    def _summary(self) -> str:
        return "; ".join(
            f"{machine.name} {machine.key.directory_id} "
            + (
                "is off"
                if (process := machine.process) is None
                else f"{process.role.value} epoch {process.epoch} log up to "
                f"{process.copy.end_offset} hw {process.high_watermark} applied "
                f"{process.view.applied_offset if process.view else None} proven {process.proven}"
            )
            for machine in self.machines
        )


def run(seed: int, events: int, *, trace: list[str] | None = None) -> Result:
    """Run one seed. InvariantError: an invariant is broken."""
    return World(seed, trace=trace).run(events)
