"""A network that loses, doubles, delays and reorders messages, and may work one way only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from sim.ground.clock import Schedule


@dataclass
class Network:
    """`blocked` holds one-way cuts (from, to) by host name."""

    schedule: Schedule
    random: Random
    drop_permille: int = 0
    duplicate_permille: int = 0
    late_permille: int = 0
    delay_ms: int = 3
    late_ms: int = 400
    blocked: set[tuple[str, str]] = field(default_factory=set)

    def send(
        self,
        source: str,
        target: str,
        deliver: Callable[[], None],
        *,
        lost: Callable[[], None],
        again: bool = True,
    ) -> None:
        """Call `deliver` once, twice (only if `again`) or never; if never, perhaps `lost`."""
        draw = self.random.randrange
        if (source, target) in self.blocked or draw(1000) < self.drop_permille:
            if draw(2):
                self.schedule.after(draw(50), lost)
            return
        self.schedule.after(self._delay(), deliver)
        if again and draw(1000) < self.duplicate_permille:
            self.schedule.after(self._delay() + draw(self.late_ms), deliver)

    def _delay(self) -> int:
        delay_ms = self.random.randrange(self.delay_ms + 1)
        if self.random.randrange(1000) < self.late_permille:
            delay_ms += self.random.randrange(self.late_ms)
        return delay_ms

    def cut(self, source: str, target: str) -> None:
        """Cut one way for some seconds."""
        way = (source, target)
        if source == target or way in self.blocked:
            return
        self.blocked.add(way)
        self.schedule.after(self.random.randrange(100, 6000), partial(self.blocked.discard, way))

    def part(self, side: Sequence[str], everybody: Sequence[str]) -> None:
        """Cut both ways between those of `side` and all others."""
        for one in side:
            for other in everybody:
                if other not in side:
                    self.cut(one, other)
                    self.cut(other, one)

    def heal(self) -> None:
        self.drop_permille = self.duplicate_permille = self.late_permille = 0
        self.blocked.clear()
