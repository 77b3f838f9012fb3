"""Faults of nodes, disks and network, and the bounds that keep them survivable.

Each seed draws a subset (swarm testing): a world with every fault at once hardly gets anywhere.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from sim.ground.medium import Fate, File, Survivors, Torn
from sim.nodes.durable import LOG

if TYPE_CHECKING:
    from sim.nodes.machine import Machine
    from sim.nodes.world import World

KINDS = (
    "drop", "duplicate", "late", "partition", "one_way", "isolate_leader", "pause", "clock",
    "power_cut", "kill", "stop", "crash_leader", "all_power", "crash_at_operation", "torn",
    "slow_disk", "disk_error", "disk_full", "bit_flip", "wipe", "formatted_again", "impostor",
    "old_program", "view_flushes", "feature_level", "few_addresses", "write_error", "read_error",
)  # fmt: skip
SILENT_MS_MAX = 3000
"""Longest pause of a node after healing."""
FLIPPED_SUFFIXES = (".log", ".checkpoint")
"""Files in which bits flip; tests/durability flips every bit of quorum-state."""


class Faults:
    """The faults of a world, until `stop` begins the healing phase."""

    def __init__(self, world: World) -> None:
        self._world = world
        random = world.random
        percent = random.choice((10, 25, 50))
        self.kinds = frozenset(kind for kind in KINDS if random.randrange(100) < percent)
        at_operation = "crash_at_operation" in self.kinds
        self._crash_permyriad = random.choice((3, 20, 60)) if at_operation else 0
        self._period_ms = random.choice((50, 200, 800))
        self._down_ms = random.choice((50, 500, 3000))
        self._flush_permille = 50 if "view_flushes" in self.kinds else 0
        self._threads = Random(f"threads of {world.seed}")
        self._waits_permille = self._threads.choice((0, 0, 30, 300))
        self._tails = Random(f"long tails of {world.seed}")
        self._tail_max = self._tails.choice((0, 30, 120))
        self._silences = Random(f"silences of {world.seed}")
        self._one_falls_silent = world.auditor.liveness.on
        self._snapshots = Random(f"snapshots of {world.seed}")
        self._snapshot_percent = self._snapshots.choice((0, 0, 10, 50))
        self.on = True
        self.quiet = False
        """True while nothing else breaks."""

    def begin(self) -> None:
        draw = self._world.random.randrange
        network = self._world.network
        if "drop" in self.kinds:
            network.drop_permille = draw(10, 100)
        if "duplicate" in self.kinds:
            network.duplicate_permille = draw(10, 200)
        if "late" in self.kinds:
            network.late_permille = draw(10, 200)
        self._next()
        self._leave_a_tail()
        if self._world.auditor.liveness.on:
            self._fall_silent()

    def stop(self) -> None:
        """Heal the network, the clocks and the disks' speed; nothing breaks from now on."""
        self.on = False
        self._crash_permyriad = self._snapshot_percent = 0
        self._world.network.heal()
        for machine in self._world.machines:
            machine.clock.set_rate(1000, self._world.schedule.now_ms)
            machine.disk.full = machine.disk.next_sync_fails = False
            machine.disk.next_write_fails = False
            machine.disk.operations_left = 0
            machine.knows_pre_vote = True
            machine.latency_ms = 2
            if machine.process is not None:
                machine.process.life.latency_ms = 2
            machine.resume()
            if machine.process is None:
                self._start(machine)

    def _next(self) -> None:
        if self.on:
            if not self.quiet:
                self._inject()
            delay_ms = 1 + self._world.random.randrange(2 * self._period_ms)
            self._world.schedule.after(delay_ms, self._next)

    def _fall_silent(self) -> None:
        """Pause a machine now and then, for about as long as makes it count as silent."""
        if not self.on:
            return
        draw, silence_max_s = self._silences, self._world.auditor.liveness.silence_max_s
        silent_ms = round(1000 * silence_max_s * draw.uniform(0.5, 3))
        machine = draw.choice(self._world.machines)
        if draw.randrange(2) and not machine.leads and not self.quiet:
            machine.pause()
            self._world.schedule.after(silent_ms, machine.resume)
        self._world.schedule.after(1 + silent_ms, self._fall_silent)

    def one_falls_silent(self) -> int:
        """Pause a machine for so many milliseconds once all is well, long enough to be fenced: it
        has to count as live again. 0: none is left to do so, or it would take too long.
        """
        silent_ms = round(3000 * self._world.auditor.liveness.silence_max_s)
        followers = [each for each in self._world.machines if each.up and not each.leads]
        if not self._one_falls_silent or silent_ms > SILENT_MS_MAX or not followers:
            return 0
        self._one_falls_silent = False
        machine = self._silences.choice(followers)
        machine.pause()
        self._world.schedule.after(silent_ms, machine.resume)
        return silent_ms

    def _leave_a_tail(self) -> None:
        """Isolate the leader now and then, and have it write what nobody else will have, and the
        next leader half as much: its snapshot ends below the first one's log.
        """
        if not self.on or not self._tail_max:
            return
        draw, count = self._tails.randrange, self._tails.randrange(self._tail_max)
        for leader in self.leaders() if not self.quiet else ():
            self.pour(count, leader)
            self._part([leader])
            self._world.schedule.after(
                draw(500, 2000), partial(self._pour_at_next, count // 2, leader)
            )
        self._world.schedule.after(draw(1, 10_000), self._leave_a_tail)

    def pour(self, count: int, leader: Machine) -> None:
        """Have a leader propose so many records at once."""
        assert leader.up is not None
        self._world.clients.pour(leader.up, count)

    def _pour_at_next(self, count: int, before: Machine) -> None:
        for leader in self.leaders():
            if leader is not before:
                self.pour(count, leader)

    def leaders(self) -> list[Machine]:
        """The machines that lead, or believe so, and take calls."""
        leaders = [each for each in self._world.machines if each.leads]
        return [each for each in leaders if each.up and not each.up.life.paused]

    # ---- asked by what breaks

    def power_goes(self) -> bool:
        """True if the power goes now; asked before each disk operation."""
        return (
            self._crash_permyriad > 0
            and not self.quiet
            and (self._world.random.randrange(10_000) < self._crash_permyriad)
        )

    def operations_after_snapshot(self) -> int:
        """The number of disk operations after a snapshot got its name until the power goes; 0: it
        stays.
        """
        draw, percent = self._snapshots.randrange, 0 if self.quiet else self._snapshot_percent
        return draw(1, 9) if draw(100) < percent else 0

    def thread_waits(self) -> bool:
        """True if a thread stops before a disk operation, and others run."""
        permille = self._waits_permille
        return permille > 0 and self._threads.randrange(1000) < permille

    def level_known(self) -> int:
        """Feature level known to a machine's program: the old release or the new one."""
        return 1 + self._world.random.randrange(2) if "feature_level" in self.kinds else 2

    def view_flushes_itself(self) -> bool:
        return self._flush_permille > 0 and (
            self._world.random.randrange(1000) < self._flush_permille
        )

    def space_comes_back(self) -> bool:
        """True if a failed write met a full disk, which has room for the next one."""
        return self._world.random.randrange(2) == 0

    def _fate(self) -> Fate:
        random = self._world.random
        if "torn" in self.kinds:
            return Torn(random.randrange(1 << 30), random.choice((32, 512)))
        return random.choice(tuple(Survivors))

    # ---- processes and machines

    def _inject(self) -> None:
        world, random = self._world, self._world.random
        kind = random.choice(sorted(self.kinds) or ("drop",))
        machine = random.choice(world.machines)
        match kind:
            case "partition":
                self._part(random.sample(world.machines, len(world.machines) // 2))
            case "one_way":
                for other in random.sample(world.machines, random.randrange(1, 4)):
                    world.network.cut(machine.name, other.name)
            case "isolate_leader":
                self._part([each for each in world.machines if each.leads])
            case "pause" if machine.process is not None:
                machine.pause()
                world.schedule.after(random.randrange(1, 4000), machine.resume)
            case "clock":
                self._set_clock(machine)
            case "power_cut":
                self.cut_power(machine)
            case "kill":
                machine.be_killed()
                self.start_soon(machine)
            case "stop" if machine.up is not None and not machine.up.life.paused:
                self._stop(machine)
            case "crash_leader":
                for leader in [each for each in world.machines if each.leads]:
                    self.cut_power(leader)
            case "all_power":
                for each in world.machines:
                    self.cut_power(each)
            case "old_program":
                machine.knows_pre_vote = random.randrange(2) == 0
            case _:
                self._break_disk(kind, machine)

    def _break_disk(self, kind: str, machine: Machine) -> None:
        random = self._world.random
        match kind:
            case "slow_disk":
                machine.latency_ms = random.choice((2, 20, 200, 800))
                if machine.process is not None:
                    machine.process.life.latency_ms = machine.latency_ms
            case "disk_error":
                machine.disk.next_sync_fails = machine.excused = True
            case "write_error":
                machine.disk.next_write_fails = machine.excused = True
            case "read_error":
                self._spoil(machine)
            case "disk_full":
                machine.disk.full = machine.excused = True
                self._world.schedule.after(random.randrange(1, 3000), partial(_make_room, machine))
            case "bit_flip":
                self._flip(machine)
            case "wipe":
                self.wipe(machine)
            case "formatted_again":
                first = machine.key in self._world.format_voters.keys
                if first and not machine.lost and self.may_lose(machine):
                    machine.die(Survivors.NONE, Survivors.NONE)
                    machine.format_again()
                    self.start_soon(machine)
            case _:
                pass

    def wipe(self, machine: Machine) -> None:
        """Replace the machine's disk, if its quorum can spare it."""
        if self.may_lose(machine):
            machine.die(Survivors.NONE, Survivors.NONE)
            machine.lost = machine.to_be_formatted = True
            self.start_soon(machine)

    def cut_power(self, machine: Machine) -> None:
        machine.die(self._fate(), self._fate())
        self.start_soon(machine)

    def start_soon(self, machine: Machine) -> None:
        delay_ms = 1 + self._world.random.randrange(self._down_ms)
        self._world.schedule.after(delay_ms, partial(self._start, machine))

    def _start(self, machine: Machine) -> None:
        if machine.process is None:
            if machine.to_be_formatted:
                machine.format_anew(self._world.new_directory_id())
            machine.start()

    def _stop(self, machine: Machine) -> None:
        process = machine.up
        assert process is not None
        self._world.loop.spawn(process.life, machine.stop_in_order(process))
        self.start_soon_after_stop(machine)

    def start_soon_after_stop(self, machine: Machine) -> None:
        """Start the machine after its stop; a process that does not stop in time is killed."""
        process = machine.process

        def go_on() -> None:
            if machine.process is process:
                machine.be_killed()
            self._start(machine)

        self._world.schedule.after(3000 + self._world.random.randrange(self._down_ms), go_on)

    def _set_clock(self, machine: Machine) -> None:
        """Set a clock slow or fast, or let it jump; the wall clock also jumps back."""
        random, now_ms = self._world.random, self._world.schedule.now_ms
        machine.clock.set_rate(random.choice((700, 900, 1000, 1300)), now_ms)
        machine.clock.offset_ms += random.choice((0, 0, 500, 5000))
        machine.wall_ms += random.choice((0, -3_600_000, 3_600_000, 30))

    # ---- the network

    def _part(self, side: list[Machine]) -> None:
        machines = self._world.machines
        self._world.network.part([each.name for each in side], [each.name for each in machines])

    # ---- losing what was durable: never more than what a minority may lose

    def _flip(self, machine: Machine) -> None:
        """Flip a bit of the log or a snapshot, on the medium and in what is read."""
        random = self._world.random
        lost = self._lose_one(machine)
        if lost is not None:
            _flip_in(lost[1], random.randrange(len(lost[1].live)), random.randrange(8))

    def flip(self, machine: Machine, path: Path, *, from_byte: int = 0) -> bool:
        """Flip a bit of this file from a byte on, if it may be lost. False: it may not."""
        if machine.lost or not self.may_lose(machine):
            return False
        machine.excused = machine.lost = True
        file = machine.disk.medium.file(path)
        draw = self._tails.randrange
        _flip_in(file, draw(from_byte, len(file.live)), draw(8))
        return True

    def _spoil(self, machine: Machine) -> None:
        """Make one file unreadable."""
        lost = self._lose_one(machine)
        if lost is not None:
            machine.disk.bad.add(lost[0])

    def _lose_one(self, machine: Machine) -> tuple[Path, File] | None:
        """A file of the log or a snapshot that may be lost; None if none may."""
        if machine.lost or not self.may_lose(machine):
            return None
        files = [
            (path, file)
            for path, file in machine.disk.medium.files()
            if isinstance(file, File) and path.parent == LOG
            if path.suffix in FLIPPED_SUFFIXES and file.live
        ]
        if not files:
            return None
        machine.excused = machine.lost = True
        return self._world.random.choice(files)

    def may_lose(self, machine: Machine) -> bool:
        """True if every voter set in force keeps a majority that has lost nothing, also once this
        machine is added to it, which may be under way.
        """
        world = self._world
        for keys in world.voter_sets_in_force():
            sound = sum(
                each.key in keys and each is not machine and not each.lost
                for each in world.machines
            )
            if sound < len({*keys, machine.key}) // 2 + 1:
                return False
        return True


def _flip_in(file: File, at: int, bit: int) -> None:
    for content in (file.live, file.durable):
        if at < len(content):
            content[at] ^= 1 << bit


def _make_room(machine: Machine) -> None:
    machine.disk.full = False
