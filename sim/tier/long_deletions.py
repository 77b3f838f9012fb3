"""Deletions of topics that are marked for longer than nodes measure time, and taken back then: the
trash begins anew, whatever its age.

They are part of healing, when nothing else happens. Draws from a generator of its own, so that
seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

SEEDS_PER_LONG_ONE = 2
LASTS_MS = (1_300_000, 1_450_000)
"""Longer than two steps of measured time: a mark counts from one step on."""


class LongDeletions:
    """The deletions, from the end of the faults on. `mark` marks a topic by a node."""

    def __init__(
        self, world: World, *, is_on: bool, mark: Callable[[Process, TopicIdPartition], None]
    ) -> None:
        self._world = world
        random = Random(f"{world.seed} long deletions")
        self._is_on = is_on and not random.randrange(SEEDS_PER_LONG_ONE)
        self.lasts_ms = random.randrange(*LASTS_MS) if self._is_on else 0
        self._mark = mark
        self._until_ms: int | None = None

    def last(self, process: Process) -> bool:
        """Mark what has a trash; True until the time is over."""
        if not self._is_on:
            return False
        world, audit = self._world, self._world.trash.audit
        now_ms = world.schedule.now_ms
        if self._until_ms is None:
            self._until_ms = now_ms + self.lasts_ms
        if now_ms >= self._until_ms:
            return False
        for partition in world.brokers.partitions:
            if audit.of(partition.tip).marks:
                self._mark(process, partition.tip)
        return True
