"""Connections of brokers to their nodes: calls are slow, lost or delivered twice."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.world import World

WRITES = frozenset({"add", "update", "delete"})
LINKS = ("slow", "lost", "answer_lost", "twice", "very_slow")
SLOW_MS_MAX, VERY_SLOW_MS_MAX = 800, 20_000
NEVER_MS = 1 << 40


@dataclass(frozen=True, slots=True)
class CallFate:
    """Fate of a call to the node. `lost`: it does not arrive. `back_ms`: delay of the answer."""

    delay_ms: int
    back_ms: int
    lost: bool = False
    twice: bool = False


class BrokerLinks:
    """The links of a seed. `kinds`: its faults; they affect `permille` of the calls."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.kinds = {kind for kind in LINKS if random.randrange(100) < 30}
        self.permille = 0

    def fate(self, machine: Machine, name: str, *, is_calm: bool) -> CallFate:
        """Draw the fate of a broker's call to its node. `is_calm`: it has no fault of `kinds`."""
        random = self._random
        there_ms, back_ms = 1 + random.randrange(5), 1 + random.randrange(5)
        there_ms += self._world.faults.call_ms(machine, name)
        if is_calm or (name == "announce" and random.randrange(2)):
            return CallFate(there_ms, back_ms)
        if not self.kinds or random.randrange(1000) >= self.permille:
            return CallFate(there_ms, back_ms)
        match random.choice(sorted(self.kinds)):
            case "slow":
                return CallFate(random.randrange(SLOW_MS_MAX), random.randrange(SLOW_MS_MAX))
            case "very_slow":
                return CallFate(random.randrange(VERY_SLOW_MS_MAX), back_ms)
            case "lost":
                return CallFate(there_ms, back_ms, lost=True)
            case "answer_lost":
                return CallFate(there_ms, NEVER_MS)
            case _:
                return CallFate(there_ms, back_ms, twice=name in WRITES)
