"""Brokers with a node beside each, a store and a metadata log: producing, elections, retention and
faults, then healing, after which bucket and metadata agree and everything sealed is copied.
"""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from kafka_formats.crc32c import crc32c
from kafka_formats.kafka_uuid import Uuid
from rlm.control.surroundings import CopyLimits
from rlm.reconcile.collector import CollectorLimits
from rlmm.manager.metadata_limits import MetadataLimits
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from sim.core.invariants import InvariantError
from sim.ground.clock import Schedule
from sim.ground.shared_memory import shared_memory
from sim.nodes.loop import Life, silence
from sim.nodes.view import memory_batches
from sim.tier.absence import Absences
from sim.tier.admins import EVERYTHING, Admins
from sim.tier.brokers import Brokers
from sim.tier.bucket import Bucket, at_once
from sim.tier.building import Building
from sim.tier.clocks import Clocks
from sim.tier.cluster_settings import ClusterSettings
from sim.tier.cuts import Cuts
from sim.tier.damage import Damage
from sim.tier.delegated import Delegated
from sim.tier.departed import Departed
from sim.tier.disaster import Disaster
from sim.tier.faults import HOUR_MS, Faults
from sim.tier.first_looks import FirstLooks
from sim.tier.following import Following
from sim.tier.holding import HoldAuditor, disks_of
from sim.tier.invariants import Auditor
from sim.tier.late import Late
from sim.tier.limits import drawn_limits
from sim.tier.local_damage import LocalDamage
from sim.tier.loop import TierLoop, the_dead_are_unheard
from sim.tier.lower_end_audit import LowerEndAudit
from sim.tier.machine import Machine, Process
from sim.tier.readers import Readers
from sim.tier.result import Result
from sim.tier.rewriting import Rewriting
from sim.tier.scenes import Scenes
from sim.tier.shared_log import SharedLog
from sim.tier.transacting import Transacting
from sim.tier.trash import Trash

T = TypeVar("T")

START_MS = 1_700_000_000_000
HEAL_MS = 1_800_000
HEAL_AFTER_JUMPS_MS = HEAL_MS + 3 * HOUR_MS
"""Longest healing: a deadline written with a clock an hour ahead is waited for, then its distance
from an event of a clock an hour behind, which is two hours more.
"""
HEAL_SEGMENT_MS = 10_000
"""Longer healing for each segment still to be copied: they may go one after the other."""
LOOK_MS = 2_000
NOBODY_IS_SILENT_S = 1e9
COLLECT_MS = 400_000
PREFIX = "tier/"
ROOM_BYTES = 1 << 30
FOREIGN = (
    "tier/notes.txt",
    "tier/t0-AAAAAAAAAAAAAAAAAAAAAQ/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAZQ.log",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Properties of a world; None: the seed draws them. `limits` are those of the nodes."""

    nodes: int | None = None
    topics: int | None = None
    faults: frozenset[str] | None = None
    brokers: frozenset[str] | None = None
    admins: frozenset[str] | None = None
    limits: CopyLimits | None = None
    hold_bytes_max: int | None = None
    """-1: nothing is held."""
    damage: bool | None = None
    local_damage: bool = False
    following: bool = False
    rewriting: bool = False
    settings: bool = False
    """Settings of the cluster change."""
    trash: bool = False
    """Retention keeps a trash, which admins restore and empty and elections cut."""
    quiet: bool = False
    """Local retention takes active segments, too."""
    clocks: bool = False
    """Clocks are wrong. No node loses its disk then: such a node forgets the time with it."""
    building: bool = False
    """Followers and new leaders build on the tier; without a plan in some seeds."""
    disaster: bool = False
    """The metadata of all nodes is lost once; without a plan in some seeds."""
    delegated: bool | None = None
    """Brokers tier by themselves; None: in some seeds, where nothing else is set. `tiering` are
    deeds of its brokers.
    """
    tiering: frozenset[str] | None = None
    cuts: bool = False
    """Brokers fall behind and are elected below a log start or into a lost range, leaders are
    replaced while they record; without a plan in some seeds.
    """
    transactions: bool = False
    """Markers lie apart from their transactions; without a plan in some seeds."""
    rough: bool | frozenset[str] | None = None
    """Brokers that tier have awkward moments, or these; None: in some seeds of that mode."""
    looks: bool = False
    """The log of a new leader of such brokers is not known at once; without a plan in most seeds of
    that mode.
    """
    late: bool = False
    """Uploads arrive behind a delete, readers are slow; without a plan in some seeds."""
    departed: bool = False
    """A node goes away for good; without a plan in some seeds."""
    absence: bool = False
    """Brokers do not know living topics for a time; without a plan in some seeds."""
    scenes: bool = False
    """Scenes of some steps are played; without a plan in some seeds."""

    def __str__(self) -> str:
        """The set fields, as `--plan` of `python -m sim` takes them."""
        said = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        return " ".join(f"{name}={value!r}" for name, value, usual in said if value != usual)


class World:
    """The world of one seed. `trace` collects what happens, as text, if given."""

    def __init__(
        self,
        seed: int,
        path: Path,
        *,
        plan: Plan | None = None,
        trace: list[str] | None = None,
    ) -> None:
        plan = plan or Plan()
        self.seed = seed
        self.random = random = Random(seed)
        self.trace = trace
        self.trace_digest = self.events = 0
        self.prefix = PREFIX
        self.schedule = Schedule()
        self.loop = TierLoop(
            self.schedule, random, on_power_cut=_already_dead, on_job=lambda _: None
        )
        self._uuids = 0
        self.foreign: frozenset[str] = frozenset()
        self.machines: list[Machine] = []
        self.departed = Departed(self, is_on=plan.departed if plan != Plan() else None)
        self.late = Late(self, is_on=plan.late if plan != Plan() else None)
        without = {"wiped"} if plan.clocks else set()
        self.faults = Faults(self, plan.faults, without=self.late.without | without)
        self.clocks = Clocks(self, is_on=plan.clocks)
        self.auditor = Auditor(self)
        self.hold_audit = HoldAuditor(self)
        self.lower_end = LowerEndAudit(self)
        self.cuts = Cuts(self, is_on=plan.cuts if plan != Plan() else None)
        self.transacting = Transacting(self, is_on=plan.transactions if plan != Plan() else None)
        self.log = SharedLog(self)
        self.first_looks = FirstLooks(self, is_on=plan.looks if plan != Plan() else None)
        is_on = bool(plan.delegated or plan.rough or plan.looks) if plan != Plan() else None
        self.delegated = Delegated(self, is_on, plan.tiering, plan.topics, plan.rough)
        self.damage = Damage(self, plan.damage)
        self.local_damage = LocalDamage(self, is_on=plan.local_damage)
        self.bucket = Bucket(self)
        self.following = Following(self, is_on=plan.following)
        self.rewriting = Rewriting(self, is_on=plan.rewriting)
        self.settings = ClusterSettings(self, is_on=plan.settings)
        self.trash = Trash(self, plan.trash if plan != Plan() else None)
        self.building = Building(self, plan.building if plan != Plan() else None)
        self.disaster = Disaster(self, plan.disaster if plan != Plan() else None)
        self.scenes = Scenes(self, is_on=plan.scenes if plan != Plan() else None)
        self.absences = Absences(self, plan.absence if plan != Plan() else None)
        self._draw_limits(plan)
        nodes = plan.nodes or random.choice((1, 2, 3, 3))
        self.machines = [Machine(self, at + 1, path / f"broker{at + 1}") for at in range(nodes)]
        self.brokers = Brokers(
            self, plan.brokers, topics=plan.topics or random.choice((1, 2, 3)), replicas=nodes
        )
        self.brokers.is_quiet = plan.quiet
        self.delegated.create_all()
        self.admins = Admins(self, plan.admins)
        self.admins.kinds -= self.late.without
        self.readers = Readers(self)
        self.foreign = frozenset(FOREIGN)
        for key in FOREIGN:
            at_once(self.bucket.put(key, data := key.encode(), crc32c=crc32c(data)))

    def _draw_limits(self, plan: Plan) -> None:
        limits = drawn_limits(self.random)
        limits = self.disaster.limits(self.trash.limits(self.following.limits(limits)))
        self.limits = self.late.limits(limits)
        self.proposal_ms_max = 40_000
        self.collector_limits = CollectorLimits()
        # Who is silent is judged in the nodes world, which has a quorum.
        self.metadata_limits = MetadataLimits(
            apply_cost_max=self.random.choice((1, 30)), node_silence_max_s=NOBODY_IS_SILENT_S
        )
        self.hold_bytes_max = self.random.choice((-1, -1, 600, 4_000, ROOM_BYTES))
        if plan.limits is not None:
            self.limits = plan.limits
        if plan.hold_bytes_max is not None:
            self.hold_bytes_max = plan.hold_bytes_max
        if self.delegated.is_on or self.settings.is_on or self.transacting.is_on:
            self.hold_bytes_max = -1  # for what nodes copy alone, of topics that are never left out

    @property
    def holds(self) -> bool:
        """True if nodes hold what is not copied."""
        return self.hold_bytes_max >= 0

    def machine(self, node_id: int) -> Machine:
        return self.machines[node_id - 1]

    def now_ms(self) -> int:
        """True time, ms since the epoch."""
        return START_MS + self.schedule.now_ms

    def shown_ms(self) -> int:
        """The time that clocks show; the store's has no error beside."""
        return self.now_ms() + self.clocks.ahead_ms

    def new_uuid(self) -> Uuid:
        self._uuids += 1
        return Uuid(b"segment-%08d" % self._uuids)

    # ---- what happens

    def note(self, what: str) -> None:
        """Count and record an event; equal seeds have equal traces."""
        self.events += 1
        if self.trace is not None:
            line = f"{self.schedule.now_ms:>8} {what}"
            self.trace_digest = zlib.crc32(line.encode(), self.trace_digest)
            self.trace.append(line)

    def told(self, record: MetadataRecord) -> str:
        """A record as text for a line."""
        if isinstance(record, RemoteLogSegmentMetadata):
            return (
                f"n{record.broker_id} {record.state.name} {self.short_id(record.segment_id.id)} "
                f"{record.start_offset} to {record.end_offset} under {record.token}"
            )
        if isinstance(record, RemoteLogSegmentMetadataUpdate):
            return (
                f"n{record.broker_id} {record.state.name} {self.short_id(record.segment_id.id)} "
                f"under {record.token}"
            )
        return type(record).__name__

    def short(self, key: str) -> str:
        """The last part of a key, with a short id."""
        name = key.rpartition("/")[2]
        stem, _, suffix = name.partition(".")
        if len(stem) == 43:
            return f"{self.short_id(Uuid.parse(stem[21:]))}.{suffix}"
        return name

    def short_id(self, id_: Uuid) -> str:
        """Number of a segment id of ours."""
        return "s" + id_[-8:].decode(errors="replace").lstrip("0")

    async def step(self, process: Process, name: str) -> None:
        """Pass a step with an effect, at which a node may end or stand still."""
        where = f"{process.machine.name} {name}"
        self.note(where)
        if not process.life.alive:
            await self.loop.create_future()
        if self.faults.crashes_at(where):
            await self.crash(process, name)
        pause_ms = self.faults.pauses_at_ms(where)
        if pause_ms:
            self.note(f"{process.machine.name} stands still {name} for {pause_ms} ms")
            process.life.paused = True
            process.machine.paused_ms = self.schedule.now_ms
            self.schedule.after(pause_ms, process.machine.resume)
            await asyncio.sleep(0)  # which ends when the process goes on

    async def crash(self, process: Process, where: str) -> None:
        """End the process here and now."""
        self.note(f"{process.machine.name} crashes {where}")
        process.life.alive = False
        self.schedule.after(0, partial(process.machine.end, process))
        await self.loop.create_future()

    # ---- running

    def run(self, events: int) -> Result:
        """Run `events` with faults, then heal."""
        with (
            self.loop.running(),
            memory_batches(),
            disks_of(self),
            silence(self.loop.failures),
            self.delegated.rough.pages(),
        ):
            try:
                for machine in self.machines:
                    machine.start()
                for actor in (
                    self.faults, self.brokers, self.admins, self.readers, self.damage,
                    self.local_damage, self.following, self.delegated, self.clocks, self.rewriting,
                    self.settings, self.trash, self.building, self.cuts, self.disaster,
                    self.first_looks, self.late, self.departed, self.scenes, self.transacting,
                    self.absences,
                ):  # fmt: skip
                    actor.begin()
                while self.events < events and self.turn():
                    pass
                heal_ms = self.heal()
            finally:
                self.end()
        accepted = self.auditor.accepted
        return Result(
            seed=self.seed,
            events=self.events,
            world_ms=self.schedule.now_ms,
            records=self.log.end,
            copied=accepted.get("COPY_SEGMENT_FINISHED", 0),
            deleted=accepted.get("DELETE_SEGMENT_FINISHED", 0),
            claims=accepted.get("PartitionClaim", 0),
            reads=self.readers.done,
            read_bytes=self.auditor.read_bytes,
            followed=self.following.moved,
            rewritten=self.rewriting.done,
            restored=self.trash.audit.restored,
            thrown_away=self.trash.audit.followed,
            emptied=self.trash.audit.emptied,
            marks_cut=self.trash.audit.cut,
            consumed_bytes=self.delegated.audit.consumed_bytes,
            built=self.building.built,
            told=self.building.told,
            struck=int(self.disaster.is_over),
            heal_ms=heal_ms,
            situations=self.cuts.situations(),
            trace=self.trace_digest,
        )

    def end(self) -> None:
        """End all processes."""
        for machine in self.machines:
            for process in (machine.process, machine.twin):
                if process is not None:
                    process.life.alive = False
                    self.loop.kill(process.life)
        self.delegated.end()

    def turn(self) -> bool:
        """Run the next thing that happens; False if there is none."""
        went_on = self.loop.turn()
        if self.auditor.violation is not None:
            raise self.auditor.violation
        if self.loop.failures:
            raise InvariantError("nothing_unhandled", self.loop.failures[0])
        return went_on

    def heal(self) -> int:
        """Heal; return the ms until all is copied and tidy. InvariantError(liveness): it
        never is.
        """
        for actor in (
            self.faults, self.damage, self.local_damage, self.following, self.rewriting,
            self.settings, self.trash, self.building, self.cuts, self.clocks,
            self.first_looks, self.late, self.departed, self.scenes, self.transacting,
            self.absences,
        ):  # fmt: skip
            actor.stop()
        self.admins.on = self.readers.on = False
        self.brokers.heal()
        self.delegated.stop()
        began_ms = next_look_ms = next_collect_ms = self.schedule.now_ms
        next_collect_ms += COLLECT_MS
        until_ms = began_ms + self._heal_ms_max()
        while self.schedule.now_ms < until_ms and self.turn():
            now_ms = self.schedule.now_ms
            if now_ms < next_look_ms:
                continue
            next_look_ms = now_ms + LOOK_MS
            ups = [machine.up for machine in self.machines if machine.up is not None]
            if len(ups) == len(self.departed.present):
                self.admins.heal(ups[0])
                self.damage.heal()
                self.following.heal()
                self.settings.heal(ups[0])
                self.trash.heal(ups[0])
                self.absences.heal(ups[0])
                self.delegated.heal()
                if self.faults.breaks_timing and now_ms >= next_collect_ms:
                    next_collect_ms = now_ms + COLLECT_MS
                    self.admins.collect(ups[0], accept=EVERYTHING)
                if not any(self.left_to_do()):
                    return now_ms - began_ms
        raise InvariantError("liveness", "; ".join(self.left_to_do()))

    def _heal_ms_max(self) -> int:
        """Longest healing by what there is to copy; healing itself adds a few segments at most. A
        node that crashed again and again saw no time pass: its deletes wait for as long once more.
        """
        rows, segments = self.auditor.reference.rows, 0
        for partition in (*self.brokers.partitions, *self.delegated.partitions):
            state = queries.partition_state(rows, partition.tip)
            next_offset = -1 if state is None else state.next_offset
            assert partition.leading is not None
            segments += sum(base > next_offset for base in partition.leading.bases)
        jumped = self.clocks.is_on or "clock_jump" in self.faults.kinds
        unseen_ms = self.schedule.now_ms if "crash" in self.faults.kinds else 0
        heal_ms = HEAL_AFTER_JUMPS_MS if jumped else HEAL_MS
        heal_ms += self.trash.long_deletions.lasts_ms
        return heal_ms + unseen_ms + segments * HEAL_SEGMENT_MS

    def left_to_do(self) -> Iterator[str]:
        """Everything not copied, not gone, or not tidy."""
        rows = self.auditor.reference.rows
        for partition in self.brokers.partitions:
            state = queries.partition_state(rows, partition.tip)
            leader = partition.leading
            assert leader is not None
            if state is None or state.next_offset < leader.bases[-1]:
                found = "nothing" if state is None else f"up to {state.next_offset}"
                yield (
                    f"{partition.tip} is copied {found}, sealed is up to {leader.bases[-1]} on "
                    f"n{partition.leader}: {self._why_not(partition.leader, partition.tip.topic)}"
                )
            yield from self.auditor.lost_in_vain(partition)
        for partition in self.brokers.deleted:
            if queries.partition_state(rows, partition.tip) is not None:
                yield f"{partition.tip} was deleted and is still there"
        for machine in self.machines:
            if machine.twin is not None:
                yield f"two processes have the node id of {machine.name}, and one goes on"
        yield from self.auditor.unquiet()
        yield from self.hold_audit.unquiet()
        yield from self.damage.left_to_do()
        yield from self.following.left_to_do()
        yield from self.trash.left_to_do()
        yield from self.absences.left_to_do()
        yield from self.building.left_to_do()
        yield from self.disaster.left_to_do()
        yield from self.delegated.left_to_do()
        yield from self.departed.left_to_do()

    def _why_not(self, node_id: int, topic: str) -> str:
        process = self.machine(node_id).up
        if process is None or process.remote_log is None:
            return "its node is down"
        pages = (each for each in process.remote_log.statuses() if each.partition.topic == topic)
        return str(next(pages, "its node does not know it"))


def run(
    seed: int, events: int, *, trace: list[str] | None = None, plan: Plan | None = None
) -> Result:
    """Run one seed. InvariantError: an invariant is broken."""
    with (
        tempfile.TemporaryDirectory(prefix="strandline-sim-", dir=shared_memory()) as path,
        the_dead_are_unheard(),
    ):
        outcome = bare(lambda: World(seed, Path(path), plan=plan, trace=trace).run(events))
    if isinstance(outcome, InvariantError):
        raise outcome
    return outcome


def bare(call: Callable[[], T]) -> T | InvariantError:
    """Result or error of the call; the error without its frames, which keep a world alive."""
    try:
        return call()
    except InvariantError as error:
        return InvariantError(error.name, str(error).removeprefix(f"{error.name}: "))


def _already_dead(_: Life) -> None:
    """Ignored: a process that ends amid a job has been noted."""
