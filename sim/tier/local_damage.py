"""Damage to a broker's disk: a sealed segment vanishes, or is cut at its last batch.

Other brokers may have its records. Draws from a generator of its own, so that seeds without it run
as before.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.tier.world import World

PERIOD_MS = 5_000


class LocalDamage:
    """Damage to disks; `harmed` counts it."""

    def __init__(self, world: World, *, is_on: bool) -> None:
        self._world = world
        self._random = Random(f"local damage {world.seed}")
        self.is_on = self._goes_on = is_on
        self.harmed = 0

    def begin(self) -> None:
        """Harm something now and then."""
        if not self._goes_on:
            return
        self._harm()
        self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self.begin)

    def stop(self) -> None:
        """Stop: cause no further damage."""
        self._goes_on = False

    def _harm(self) -> None:
        """Harm a whole, committed segment, also at the head of the log."""
        partition = self._random.choice(self._world.brokers.partitions)
        broker = self._random.choice(sorted(partition.replicas))
        replica = partition.replicas[broker]
        whole = [
            base
            for base, following in zip(replica.bases, replica.bases[1:], strict=False)
            if following <= replica.high_watermark
            and not any(base <= each.base < following for each in replica.lost)
        ]
        if not whole:
            return
        base, cut = self._random.choice(whole), self._random.randrange(3) == 0
        self._world.note(
            f"{partition.tip.topic}: n{broker}'s segment {base} is {'cut' if cut else 'gone'}"
        )
        self.harmed += 1
        (replica.shorten if cut else replica.lose)(base)
