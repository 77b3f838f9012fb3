"""Faults of a seed: each draws a subset (swarm testing), and all end.

Bounds keep them survivable: a request that was given up arrives at most `LATE_MS_MAX` later, less
than the margin that clean-ups wait (`upload_margin_s`). Only very late requests, jumping clocks and
processes that stand still right before they send break that, and then a collector has to tidy up.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.world import World

KINDS = (
    "crash", "crash_at_step", "pause", "pause_at_step", "cut_off", "deaf", "no_quorum",
    "lost_answer", "twice", "store_away", "store_slow", "store_lost_answer", "store_late",
    "store_very_late", "torn", "damaged_get", "small_pages", "clock_skew", "clock_jump", "lagging",
    "disk_full", "disk_error", "disk_amid", "wiped", "twin",
)  # fmt: skip
LATE_MS_MAX = 12_000
VERY_LATE_MS_MAX = 300_000
SKEW_MS_MAX = 2_000
HOUR_MS = 3_600_000
NONE: frozenset[str] = frozenset()
MUTATIONS = frozenset({"put", "part", "complete", "start", "delete", "abort"})


@dataclass(frozen=True, slots=True)
class ProposalFate:
    """Fate of a proposal; `refused`: there is no leader, nothing was appended."""

    delay_ms: int
    refused: bool = False
    lost: bool = False
    answer_lost: bool = False
    twice: bool = False


@dataclass(frozen=True, slots=True)
class RequestFate:
    """Fate of a request to the store. `given_up_ms`: the sender is told after that time that there
    is no answer, while the request is still under way.
    """

    delay_ms: int
    refused: bool = False
    answer_lost: bool = False
    given_up_ms: int | None = None


class Faults:
    """The faults, until `stop`. `kinds` None: the seed draws them. `without` are left out."""

    def __init__(
        self, world: World, kinds: frozenset[str] | None, *, without: AbstractSet[str] = NONE
    ) -> None:
        self._world = world
        random = world.random
        percent = random.choice((10, 25, 50))
        if kinds is None:
            kinds = frozenset(kind for kind in KINDS if random.randrange(100) < percent)
        self.kinds = kinds - without
        self.on = bool(self.kinds)
        self._permille = random.choice((5, 20, 60))
        self._step_permille = random.choice((2, 5, 15))
        self._period_ms = random.choice((5_000, 15_000, 40_000))
        self._latency_ms_max = random.choice((1, 20, 200)) if self.kinds else 1
        self._lag_ms_max = 4_000 if "lagging" in self.kinds else 0
        self.page_limit = random.choice((1, 3)) if "small_pages" in self.kinds else 1000
        self._away_until_ms = 0
        self._no_quorum_until_ms = 0

    @property
    def breaks_timing(self) -> bool:
        """True if a request may arrive later than anybody waits: on its way, or sent by a process
        that stood still after it looked at the clock.
        """
        return bool(self.kinds & {"store_very_late", "clock_jump", "pause_at_step"})

    def skew_ms(self) -> int:
        """Constant error of a machine's clock."""
        if "clock_skew" not in self.kinds:
            return 0
        return self._world.random.randrange(-SKEW_MS_MAX, SKEW_MS_MAX + 1)

    def begin(self) -> None:
        if self.on:
            self._act()
            self._world.schedule.after(
                1 + self._world.random.randrange(2 * self._period_ms), self.begin
            )

    def stop(self) -> None:
        """End all faults."""
        self.on = False
        self._away_until_ms = self._no_quorum_until_ms = 0
        self._lag_ms_max = 0
        for machine in self._world.machines:
            machine.connect()
            machine.resume()
            machine.wall_ms = 0
            machine.miss_bytes(0)

    def _hits(self, kind: str, permille: int) -> bool:
        return self.on and kind in self.kinds and self._world.random.randrange(1000) < permille

    # ---- now and then

    def _act(self) -> None:
        world, random = self._world, self._world.random
        machine = random.choice(world.machines)
        kind = random.choice(sorted(self.kinds))
        now_ms, long_ms = world.schedule.now_ms, 1 + random.randrange(100_000)
        match kind:
            case "crash":
                world.note(f"{machine.name} crashes")
                machine.kill()
            case "wiped":
                world.note(f"{machine.name} loses its disk")
                machine.wipe()
                machine.kill()
            case "twin" if machine.up is not None and machine.twin is None and not world.holds:
                world.note(f"{machine.name} is started a second time")
                machine.start_twin()
            case "pause":
                self._pause(machine, long_ms)
            case "cut_off" if not machine.cut_off:
                world.note(f"{machine.name} is cut off for {long_ms} ms")
                machine.cut_off = True
                world.schedule.after(long_ms, machine.connect)
            case "deaf" if not machine.cut_off:
                world.note(f"{machine.name} hears nothing of the log for {long_ms} ms")
                machine.deaf = True
                world.schedule.after(long_ms, machine.connect)
            case "no_quorum":
                self._no_quorum_until_ms = now_ms + long_ms // 3
            case "store_away":
                self._away_until_ms = now_ms + long_ms // 3
            case "clock_jump":
                machine.wall_ms = random.choice((0, 0, HOUR_MS, -HOUR_MS, 30_000, -30_000))
                world.note(f"{machine.name} has a clock that is {machine.wall_ms} ms off")
            case "disk_full":
                machine.miss_bytes(random.choice((0, 0, 300, 3_000)))
                world.note(f"{machine.name} misses {machine.missing_bytes} bytes")
            case _:
                pass

    def _pause(self, machine: Machine, long_ms: int) -> None:
        if machine.process is not None and not machine.process.life.paused:
            self._world.note(f"{machine.name} stands still for {long_ms} ms")
            machine.pause()
            self._world.schedule.after(long_ms, machine.resume)

    # ---- at a step

    def crashes_at(self, step: str) -> bool:  # noqa: ARG002 (scripts name the step)
        return self._hits("crash_at_step", self._step_permille)

    def pauses_at_ms(self, step: str) -> int:  # noqa: ARG002 (scripts name the step)
        """Time that the whole process stands still; 0: not at all."""
        if self._hits("pause_at_step", self._step_permille):
            return 1 + self._world.random.randrange(120_000)
        return 0

    def disk_fails(self, step: str) -> bool:  # noqa: ARG002 (scripts name the step)
        return self._hits("disk_error", self._permille)

    def brokers_act_amid(self, step: str) -> bool:  # noqa: ARG002 (scripts name the step)
        """True if brokers act between two calls of a thread."""
        return self._hits("disk_amid", 4 * self._permille)

    def latency_ms(self) -> int:
        more = self._world.random.randrange(self._lag_ms_max + 1) if self._lag_ms_max else 0
        return 1 + self._world.random.randrange(self._latency_ms_max) + more

    def answer_ms(self, machine: Machine, name: str) -> int:  # noqa: ARG002 (scripts name it)
        """The time after which a broker answers; what it says is so then."""
        return self.latency_ms()

    def call_ms(self, machine: Machine, name: str) -> int:  # noqa: ARG002 (scripts name it)
        """The time by which a broker's call arrives later than others; seeds have other fates."""
        return 0

    def proposal(self, machine: Machine, name: str) -> ProposalFate:  # noqa: ARG002 (scripts do)
        delay_ms = self.latency_ms()
        now_ms = self._world.schedule.now_ms
        if now_ms < self._no_quorum_until_ms:
            return ProposalFate(delay_ms, refused=True)
        if machine.cut_off:
            return ProposalFate(delay_ms, lost=True)
        if self._hits("lost_answer", 3 * self._permille):
            lost = not self._world.random.randrange(3)
            late_ms = self._world.random.choice((0, 0, 3_000, 30_000))
            return ProposalFate(delay_ms + late_ms, lost=lost, answer_lost=True)
        return ProposalFate(delay_ms, twice=self._hits("twice", 3 * self._permille))

    def request(self, machine: Machine, name: str) -> RequestFate:  # noqa: ARG002 (scripts do)
        """Fate of a request; `name` is its operation and object."""
        delay_ms, random = self.latency_ms(), self._world.random
        operation = name.partition(" ")[0]
        if self._world.schedule.now_ms < self._away_until_ms:
            return RequestFate(delay_ms, refused=True)
        if self._hits("store_away", self._permille):
            return RequestFate(delay_ms, refused=True)
        if self._hits("store_lost_answer", 2 * self._permille):
            return RequestFate(delay_ms, answer_lost=True)
        if operation in MUTATIONS and self._hits("store_late", 2 * self._permille):
            late_ms = random.randrange(LATE_MS_MAX)
            return RequestFate(late_ms, given_up_ms=random.randrange(late_ms + 1))
        if operation in MUTATIONS and self._hits("store_very_late", self._permille):
            late_ms = random.randrange(VERY_LATE_MS_MAX)
            return RequestFate(late_ms, given_up_ms=random.randrange(5_000))
        if self._hits("store_slow", 2 * self._permille):
            return RequestFate(random.randrange(LATE_MS_MAX))
        return RequestFate(delay_ms)

    def tears(self) -> bool:
        return self._hits("torn", 3 * self._permille)

    def damaged(self, key: str, data: bytes) -> bytes:
        """The bytes of a read, perhaps with a flipped bit, except for the cluster marker."""
        if data and "_strandline" not in key and self._hits("damaged_get", self._permille):
            at = self._world.random.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        return data

    def dies_with_its_sender(self) -> bool:
        """True if a request dies with the process that sent it."""
        return not self._world.random.randrange(2)
