"""Clocks of the store and of all nodes that are set ahead together for a while, as by a wrong time
server: they agree with each other all the time.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from sim.tier.faults import HOUR_MS

if TYPE_CHECKING:
    from sim.tier.world import World

PERIOD_MS = 40_000
AHEAD_MS_MAX = 200_000
"""Shorter than the hold, which is as long as they are set ahead."""


class Clocks:
    """`ahead_ms`: by how much all clocks are ahead of the true time."""

    def __init__(self, world: World, *, is_on: bool) -> None:
        self._world = world
        self._random = Random(f"clocks {world.seed}")
        self._goes_on = self.is_on = is_on
        self.ahead_ms = 0

    def begin(self) -> None:
        """Set them now and then."""
        if self.is_on:
            self._world.schedule.after(1 + self._random.randrange(PERIOD_MS), self._set)

    def stop(self) -> None:
        """Set them right for good."""
        self._goes_on, self.ahead_ms = False, 0

    def _set(self) -> None:
        if not self._goes_on:
            return
        # A node that never knew the time can't notice that it is wrong.
        if all(each.clock.remembered_ms is not None for each in self._world.machines):
            self.ahead_ms = HOUR_MS
            self._world.note("all clocks are set ahead by an hour")
        self._world.schedule.after(1 + self._random.randrange(AHEAD_MS_MAX), self._set_right)

    def _set_right(self) -> None:
        self._world.note("all clocks are set right")
        self.ahead_ms = 0
        self.begin()
