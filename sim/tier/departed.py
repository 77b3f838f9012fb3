"""A node that goes away for good, its broker with it: what it began is ended by others.

Of a topic that brokers tier, the node goes once the broker has marked the segments of a deleted
topic, and before it removes them.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.rows import queries

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.partition import Partition
    from sim.tier.world import World

SEEDS_PER_DEPARTED_ONE = 4
GOES_MS = (20_000, 300_000)
TRIED_EACH_MS = 2_000


class Departed:
    """The node that goes. `is_on` None: in some seeds."""

    def __init__(self, world: World, *, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"{world.seed} departed")
        drawn = not random.randrange(SEEDS_PER_DEPARTED_ONE)
        self.is_on = self._goes_on = drawn if is_on is None else is_on
        self.machine: Machine | None = None
        self._leaves_to_others: list[TopicIdPartition] = []
        self._deleting = -1

    @property
    def present(self) -> list[Machine]:
        """All machines but the one that went."""
        return [each for each in self._world.machines if not each.is_gone]

    def begin(self) -> None:
        """Let one go, some time later."""
        world = self._world
        # A disaster starts all nodes again; one node alone has nobody to leave anything to.
        self.is_on = self.is_on and len(world.machines) > 1 and not world.disaster.is_on
        if self.is_on:
            world.schedule.after(self._random.randrange(*GOES_MS), self._try)

    def stop(self) -> None:
        """Nobody goes any more."""
        self._goes_on = False

    def _try(self) -> None:
        if not self._goes_on or self.machine is not None:
            return
        world, random = self._world, self._random
        machine = random.choice(world.machines)
        if machine.up is not None and machine.broker_up and self._may_go(machine):
            led = [p for p in world.delegated.partitions if p.leader == machine.node_id]
            if led and self._deleting < 0 and random.randrange(4):
                partition = random.choice(led)
                self._deleting = machine.node_id
                world.delegated.delete_topic(partition, delay_ms=0)
                world.delegated.create(partition.tip.topic, is_tiered=True)
            else:
                self._go(machine)
        world.schedule.after(TRIED_EACH_MS, self._try)

    def _may_go(self, machine: Machine) -> bool:
        """True if every partition that it leads has another leader to come."""
        return all(self._heirs(each, machine) for each in self._led(machine))

    def _led(self, machine: Machine) -> list[Partition]:
        both = (*self._world.brokers.partitions, *self._world.delegated.partitions)
        return [each for each in both if each.leader == machine.node_id]

    def _heirs(self, partition: Partition, machine: Machine) -> list[int]:
        return [
            each
            for each in partition.in_sync
            if each != machine.node_id and self._world.machine(each).broker_up
        ]

    def marked(self, node_id: int, tip: TopicIdPartition) -> bool:
        """True if a broker that has marked the segments of a deleted topic goes now."""
        machine = self._world.machine(node_id)
        if node_id != self._deleting or not self._goes_on or self.machine is not None:
            return False
        if not self._may_go(machine):
            return False
        self._leaves_to_others.append(tip)
        self._world.schedule.after(0, lambda: self._go(machine))
        return True

    def _go(self, machine: Machine) -> None:
        world = self._world
        if self.machine is not None:
            return
        world.note(f"{machine.name} goes away for good")
        self.machine = machine
        if machine.broker_up:
            world.brokers.switch(machine)
        machine.is_gone = True
        if machine.twin is not None:
            machine.end(machine.twin)
        machine.kill()
        for partition in self._led(machine):
            heir = self._random.choice(self._heirs(partition, machine))
            elects = world.delegated if partition in world.delegated.partitions else world.brokers
            elects.elect(partition, heir, unclean=False)
        for partition in (*world.brokers.partitions, *world.delegated.partitions):
            partition.drop_from_in_sync(machine.node_id)

    def is_left_to_others(self, tip: TopicIdPartition) -> bool:
        """True for a deleted topic that no admin deletes: its broker had begun to."""
        return tip in self._leaves_to_others

    def left_to_do(self) -> Iterator[str]:
        """Deletions that nobody ends."""
        for tip in self._leaves_to_others:
            for row in queries.list_segments(self._world.auditor.reference.rows, tip):
                yield f"{row.segment_id} is {row.state.name} of a broker that went"
