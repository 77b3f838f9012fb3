"""Brokers that cut a held file at another leader's log, go on in it, and delete it at once, some
while their node is down.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from sim.tier.partition import Partition, common_end

if TYPE_CHECKING:
    from sim.tier.replica import Replica
    from sim.tier.world import World

PERIOD_MS = 20_000
HELD_AFTER_MS = 8_000
"""The time by which a node has looked at its broker's log directory."""
BATCHES_MAX = 4


class Rewriting:
    """Held files that are written anew; `done` counts those that are deleted then."""

    def __init__(self, world: World, *, is_on: bool) -> None:
        self._world = world
        self._random = Random(f"rewriting {world.seed}")
        self._goes_on = is_on
        self.done = 0

    def begin(self) -> None:
        """Let it happen now and then."""
        if not self._goes_on:
            return
        partition = self._random.choice(self._world.brokers.partitions)
        if self._up(partition, partition.leader):
            self._fall_behind(partition, partition.leader)
        self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self.begin)

    def stop(self) -> None:
        """Nothing more is written anew."""
        self._goes_on = False

    def _up(self, partition: Partition, broker: int) -> bool:
        return broker in partition.replicas and self._world.machine(broker).broker_up

    def _fall_behind(self, partition: Partition, leader: int) -> None:
        """Let a leader alone commit and seal what no follower has, for its node to hold."""
        for other in sorted(partition.replicas):
            partition.drop_from_in_sync(other)
        self._append(partition)
        replica = partition.replicas[leader]
        replica.roll()
        self._world.note(f"{partition.tip.topic}: n{leader} leads alone up to {replica.end}")
        self._world.brokers.look_after(self._world.machine(leader))
        self._world.schedule.after(HELD_AFTER_MS, partial(self._rewrite, partition, leader))

    def _rewrite(self, partition: Partition, broker: int) -> None:
        """Cut the file at another leader's log, go on in it up to another end, and delete it."""
        others = [each for each in sorted(partition.replicas) if each != broker]
        alive = [each for each in others if self._up(partition, each)]
        if not self._goes_on or partition.deleted or partition.leader != broker or not alive:
            return
        machine, replica = self._world.machine(broker), partition.replicas[broker]
        leader = self._random.choice(alive)
        base = _cut_amid(replica, common_end(replica, partition.replicas[leader]))
        if base is None or not machine.broker_up:
            return
        if self._random.randrange(2):
            machine.kill()
        self._world.brokers.elect(partition, leader, unclean=True)
        partition.hear(broker)
        self._append(partition)
        partition.replicate(broker)
        replica.roll()
        partition.replicate(broker)  # it hears what is committed
        after = [each for each in replica.bases if base < each <= replica.high_watermark]
        if base in replica.bases and after:
            self._world.note(f"{partition.tip.topic}: n{broker} deletes what it wrote from {base}")
            replica.trim(after[0])
            self.done += 1

    def _append(self, partition: Partition) -> None:
        for _ in range(1 + self._random.randrange(BATCHES_MAX)):
            partition.append(self._world.now_ms())


def _cut_amid(replica: Replica, end: int) -> int | None:
    """The base of the sealed segment that a cut at `end` leaves a part of; None without one."""
    found = (base for base, following in pairwise(replica.bases) if base < end < following)
    return next(found, None)
