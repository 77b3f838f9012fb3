"""Interleavings by hand: a text of deeds and faults in, what came of it out.

    start N            the node (1 or 2) begins to run; it restarts by itself when it crashes
    kill N             it crashes now, and starts three seconds later
    append K           the leader writes K batches; `roll [N]` seals them, `replicate N` fetches
                       them, `drop N` takes the broker from those in sync
    elect N [unclean]  the controller makes broker N leader; the other hears of it by `hear N`
    begin              the leader's log has an open transaction from here on, until its `commit`
    checkpoint N       broker N writes its high watermarks down
    trim N OFFSET      local retention of broker N, of `all` that is sealed
    lose N BASE        the files of a sealed segment are gone from broker N's disk
    shorten N BASE     it is cut there at its last batch
    forget N OFFSET    broker N's batch there is damaged, too
    cut N OFFSET       DeleteRecords at broker N; the segments below go with the next `trim`
    policy MS          the topic's remote retention
    follow             the topic's policy has the tier's log start follow DeleteRecords
    move N OFFSET [apart]  broker N's replica comes to another log directory, fetched from there on
                       into one segment, or each batch into its own
    recreate           the topic is deleted and made again; `delete data` marks what it left behind
    at STEP, crash     a node's step, as `n1 before COPY_SEGMENT_FINISHED`: it ends there
    at STEP, pause S   ... or stands still for S seconds
    at STEP, lose      a proposal or request by its name, as `n1 COPY_SEGMENT_FINISHED`: the answer
    at STEP, late S    ... or it arrives S seconds later, and its sender gives it up at once; or
                       the broker answers a question (`n1 leadership`) as things are then
                       ... or a broker's call comes to its node (`n1 call add`) so late
    at STEP, refuse    ... or the store refuses it, each time
    away               the store takes nothing until it is `back`
    hold BYTES         at first: nodes hold what is not copied, so much of it alone
    full N BYTES       so much of it would have to go for enough of N's disk to be free
    run S              S seconds pass
    read N OFFSET      node N reads all records from there on
    collect N          garbage collection on node N
    show               metadata and bucket
    quiet              all is healed, and after it bucket and metadata are the same
    every step of nK   the whole script again for every step of that node: it ends there

`sim/tier/tiering_scripts.py` has the deeds about partitions that brokers tier themselves. Every
step of a node that has an effect has a name; ids are the numbers of the segments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_formats.errors import StrandlineError
from rlm.control.surroundings import CopyLimits
from rlm.data_plane.read_request import RecordsRequest
from rlmm.partition_state import TopicPolicy
from rlmm.rows import queries
from sim.core.invariants import InvariantError
from sim.ground.shared_memory import shared_memory
from sim.nodes.loop import silence
from sim.nodes.view import memory_batches
from sim.tier import tiering_scripts
from sim.tier.faults import Faults, ProposalFate, RequestFate
from sim.tier.holding import disks_of, held_logs
from sim.tier.loop import the_dead_are_unheard
from sim.tier.machine import Machine
from sim.tier.partition import Partition
from sim.tier.readers import batches_of
from sim.tier.world import Plan, World, bare

LIMITS = CopyLimits(
    scan_interval_s=1.0,
    upload_deadline_s=60.0,
    upload_margin_s=30.0,
    propose_deadline_s=2.0,
    propose_attempts_max=3,
    backoff_max_s=20.0,
    retention_interval_s=5.0,
    retention_max_percent=100.0,
    delete_delay_s=20.0,
)
WALK_LIMITS = replace(
    LIMITS, scan_interval_s=3.0, upload_deadline_s=20.0, upload_margin_s=10.0, delete_delay_s=5.0
)
"""The limits of scripts that end a node at every step: they are played a hundred times, and each
second costs as much as a step.
"""
NOTHING: frozenset[str] = frozenset()
TOPIC = "t0"
EFFECTS = ("log ", "store: put", "store: complete", "store: delete", "broker ")
DEEDS = (" crashes ", " stands still ", " lets ")
ALL_BYTES = 1 << 30
READ_MS_MAX = 60_000
ROLL_PERCENT = 25
"""Share of fetched batches after which a follower begins a new segment."""


class ScriptedFaults(Faults):
    """Faults that `at` names, once each; all else works, a millisecond apart."""

    def __init__(self, world: World) -> None:
        super().__init__(world, NOTHING)
        self.traps: dict[str, list[str]] = {}
        self.refused: set[str] = set()
        self.away = False
        self.steps: list[str] = []
        self.crash_at = -1

    def _trap(self, step: str, *kinds: str) -> list[str] | None:
        trap = self.traps.get(step)
        if trap is None or trap[0] not in kinds:
            return None
        return self.traps.pop(step)

    def crashes_at(self, step: str) -> bool:
        self.steps.append(step)
        return len(self.steps) - 1 == self.crash_at or self._trap(step, "crash") is not None

    def pauses_at_ms(self, step: str) -> int:
        trap = self._trap(step, "pause")
        return 0 if trap is None else 1000 * int(trap[1])

    def answer_ms(self, machine: Machine, name: str) -> int:
        trap = self._trap(f"{machine.name} {name}", "late")
        return self.latency_ms() if trap is None else 1000 * int(trap[1])

    def call_ms(self, machine: Machine, name: str) -> int:
        trap = self._trap(f"{machine.name} call {name}", "late")
        return 0 if trap is None else 1000 * int(trap[1])

    def proposal(self, machine: Machine, name: str) -> ProposalFate:
        trap = self._trap(f"{machine.name} {name}", "lose", "late")
        if trap is None:
            return ProposalFate(1)
        late_ms = 1000 * int(trap[1]) if trap[0] == "late" else 1
        return ProposalFate(late_ms, answer_lost=True)

    def request(self, machine: Machine, name: str) -> RequestFate:
        if self.away or f"{machine.name} {name}" in self.refused:
            return RequestFate(1, refused=True)
        trap = self._trap(f"{machine.name} {name}", "lose", "late", "refuse")
        if trap is None:
            return RequestFate(1)
        if trap[0] == "refuse":
            self.refused.add(f"{machine.name} {name}")
            return RequestFate(1, refused=True)
        if trap[0] == "lose":
            return RequestFate(1, answer_lost=True)
        return RequestFate(1000 * int(trap[1]), given_up_ms=1)

    def dies_with_its_sender(self) -> bool:
        return False


@dataclass(slots=True)
class Script:
    """A run of a script; `out` is its output."""

    world: World
    faults: ScriptedFaults
    out: list[str]
    told: int = 0

    @property
    def partition(self) -> Partition:
        """The living partition."""
        return (*self.world.brokers.partitions, *self.world.delegated.partitions)[0]

    def do(self, line: str) -> None:
        """Carry out one line."""
        if line.startswith("at "):
            step, _, deed = line[3:].partition(", ")
            self.faults.traps[step] = deed.split()
            return
        verb, *words = line.split()
        match verb, words:
            case "start", [node]:
                self.world.machine(int(node)).start()
            case "append", [count]:
                for _ in range(int(count)):
                    self.partition.append(self.world.now_ms())
            case "roll", node:
                broker = int(node[0]) if node else self.partition.leader
                self.partition.replicas[broker].roll()
            case "kill", [node]:
                self.world.machine(int(node)).kill()
            case "drop", [node]:
                self.partition.drop_from_in_sync(int(node))
            case "replicate", [node]:
                self.partition.replicate(int(node))
            case "elect", [node, *how]:
                self.partition.elect(int(node), unclean=bool(how))
                self._tell(int(node))
            case "begin", []:
                self.partition.begin_transaction()
            case "commit", []:
                self.partition.end_transaction()
            case "checkpoint", [node]:
                self.world.brokers.look_after(self.world.machine(int(node)))
            case "hear", [node]:
                self.partition.hear(int(node))
                self._tell(int(node))
            case "trim", [node, offset]:
                self.world.brokers.retains = True
                replica = self.partition.replicas[int(node)]
                replica.trim(replica.bases[-1] if offset == "all" else int(offset))
            case "lose", [node, base]:
                self.partition.replicas[int(node)].lose(int(base))
            case "forget", [node, offset]:
                self.partition.replicas[int(node)].forget(int(offset))
            case "shorten", [node, base]:
                self.partition.replicas[int(node)].shorten(int(base))
            case "cut", [_, offset] if self.partition.is_tiered:
                tiering_scripts.take(self.world, self.partition, int(offset))
            case "cut", [node, offset]:
                self.partition.delete_records(int(node), int(offset))
            case "move", [node, offset, *how]:
                self.partition.replicas[int(node)].move(int(offset), lambda: bool(how))
            case "recreate", []:
                self.world.brokers.delete_topic(self.partition)
                self.world.brokers.create(TOPIC).roll_percent = ROLL_PERCENT
            case _:
                self._ask(line, verb, words)

    def _ask(self, line: str, verb: str, words: list[str]) -> None:
        ups = [machine.up for machine in self.world.machines if machine.up is not None]
        match verb, words:
            case "policy", [ms]:
                self.world.admins.set_policy(ups[0], TOPIC, TopicPolicy(retention_ms=int(ms)))
            case "follow", []:
                self.world.admins.follow(ups[0], TOPIC, follow=True)
            case "delete", ["data"]:
                deleted = (*self.world.brokers.deleted, *self.world.delegated.deleted)
                self.world.admins.delete(ups[0], deleted[0].tip)
            case "run", [seconds]:
                self._run(1000 * int(seconds))
            case "read", [node, offset]:
                self._read(int(node), int(offset))
            case "collect", [node]:
                process = self.world.machine(int(node)).up
                assert process is not None
                self.world.admins.collect(process, accept=100)
            case "show", []:
                self.out += self._shown()
            case "quiet", []:
                left = [f"{step}, {deed}" for step, deed in self.faults.traps.items()]
                assert self.faults.crash_at >= 0 or not left, f"never came to {left}"
                self.world.heal()
                self.out.append("  all is quiet")
            case "hold", [_]:
                pass  # it is in the plan
            case "tiered" | "late", []:
                pass  # the world began so
            case "full", [node, count]:
                self.world.machine(int(node)).miss_bytes(int(count))
            case "away" | "back", []:
                self.faults.away = verb == "away"
            case _:
                known = tiering_scripts.do(self.world, self.partition, verb, words)
                assert known, f"no such deed: {line}"

    def _tell(self, node: int) -> None:
        """Tell a broker that tiers the partition itself."""
        if self.partition.is_tiered:
            self.world.delegated.hear(self.partition, node)

    def _run(self, ms: int) -> None:
        until_ms = self.world.schedule.now_ms + ms
        self.world.schedule.after(ms, lambda: None)
        while self.world.schedule.now_ms < until_ms and self.world.turn():
            pass

    def _read(self, node: int, offset: int) -> None:
        process = self.world.machine(node).up
        assert process is not None
        found: list[str] = []

        async def read() -> None:
            assert process.parts is not None
            data, end = bytearray(), ""
            try:
                request = RecordsRequest(offset, max_bytes=ALL_BYTES)
                async for piece in process.parts.reads.records(self.partition.tip, request):
                    data += piece
            except StrandlineError as error:
                end = f", then {type(error).__name__}"
            batches = batches_of(bytes(data))
            applied = process.manager.applied_offset if process.manager else -1
            self.world.auditor.read(self.partition.tip, batches, offset, (applied, applied))
            spans = [f"{each.base}-{each.last}@{each.epoch}" for each in batches]
            found.append(f"  n{node} reads {' '.join(spans) or 'nothing'}{end}")

        self.world.loop.spawn(process.life, read())
        until_ms = self.world.schedule.now_ms + READ_MS_MAX
        while not found and self.world.schedule.now_ms < until_ms and self.world.turn():
            pass
        self.out += found

    def _shown(self) -> Iterator[str]:
        rows = self.world.auditor.reference.rows
        brokers, tiering = self.world.brokers, self.world.delegated
        for partition in (
            *brokers.deleted, *tiering.deleted, *brokers.partitions, *tiering.partitions,
        ):  # fmt: skip
            state = queries.partition_state(rows, partition.tip)
            if state is None:
                yield "  not in the metadata"
                continue
            lineage = " ".join(f"{each.epoch}@{each.start_offset}" for each in state.lineage)
            lost = " ".join(f"{each.start}-{each.end}" for each in state.lost_ranges)
            yield (
                f"  lineage {lineage}, log start {state.log_start_offset}, next "
                f"{state.next_offset}" + (f", lost {lost}" if lost else "")
            )
            for row in queries.list_segments(rows, partition.tip):
                name = self.world.short_id(row.segment_id.id)
                yield f"  {name} {row.start_offset} to {row.end_offset} {row.state.name}"
        for machine in self.world.machines:
            for log in held_logs(machine):
                start, end, *_ = map(int, log.parent.name.split("-"))
                yield f"  {machine.name} holds {start} to {end - 1}"
        for key in sorted(self.world.bucket.contents):
            if key not in self.world.foreign and "_strandline" not in key:
                yield f"  {self.world.short(key)}"

    def tell_effects(self) -> None:
        """Append what happened since the last line."""
        trace = self.world.trace
        assert trace is not None
        for line in trace[self.told :]:
            what = line[9:]
            if what.startswith(EFFECTS) or any(each in what for each in DEEDS):
                self.out.append(f"  {what}")
        self.told = len(trace)


def play(text: str) -> str:
    """Play a script; return it with the output below each line."""
    lines = [line for line in text.splitlines() if not line.startswith(("  ", "every step"))]
    every = [line for line in text.splitlines() if line.startswith("every step of ")]
    if not every:
        return "\n".join(_played(lines, -1, LIMITS)[0]) + "\n"
    node = every[0].split()[-1]
    out, steps = _played(lines, -1, WALK_LIMITS)
    out.append(every[0])
    for at, step in enumerate(steps):
        if step.startswith(node):
            try:
                _played(lines, at, WALK_LIMITS)
            except InvariantError as error:
                raise InvariantError(error.name, f"ended at {step}: {error}") from error
            out.append(f"  {step}")
    return "\n".join(out) + "\n"


def _played(lines: list[str], crash_at: int, limits: CopyLimits) -> tuple[list[str], list[str]]:
    """The output, and the steps before `quiet`."""
    with (
        tempfile.TemporaryDirectory(prefix="strandline-script-", dir=shared_memory()) as path,
        the_dead_are_unheard(),
    ):
        outcome = bare(lambda: _play(lines, crash_at, limits, Path(path)))
    if isinstance(outcome, InvariantError):
        raise outcome
    return outcome


def _play(
    lines: list[str], crash_at: int, limits: CopyLimits, path: Path
) -> tuple[list[str], list[str]]:
    held = [int(line.split()[1]) for line in lines if line.startswith("hold ")]
    plan = Plan(
        2, 1, NOTHING, NOTHING, NOTHING, limits, held[0] if held else -1, damage=False,
        following="follow" in lines,
        delegated=not tiering_scripts.AT_FIRST.isdisjoint(lines), tiering=NOTHING,
    )  # fmt: skip
    world = World(1, path, plan=plan, trace=[])
    world.faults = faults = ScriptedFaults(world)
    faults.crash_at = crash_at
    partitions = (*world.brokers.partitions, *world.delegated.partitions)
    for random in (world.random, *(each.random for each in partitions)):
        random.seed(1)  # whatever was drawn so far
    script = Script(world, faults, [])
    script.partition.roll_percent = ROLL_PERCENT
    steps: list[str] = []
    with world.loop.running(), memory_batches(), disks_of(world), silence(world.loop.failures):
        try:
            if world.delegated.is_on:
                tiering_scripts.begin(world, lines).roll_percent = ROLL_PERCENT
            script.do("elect 1")
            script.do("hear 2")
            for line in lines:
                script.out.append(line)
                if line == "quiet":
                    steps = list(faults.steps)
                if line and not line.startswith("#"):
                    script.do(line)
                    if line != "quiet":
                        script.tell_effects()
        finally:
            world.end()
    return script.out, steps
