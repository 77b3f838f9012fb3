"""Scenes of some steps that lead to states which chance hardly ever hits: topics that nodes copy.

fill   a leader drops what is not copied, and what lies behind it is; the next one has all of it,
       and copies it, slowly, while what lies behind it expires
heads  a leader's disk begins above what it copied in its present epoch; another one is elected,
       unclean and with a lower log, and then it leads again, with all that it had

Of those that brokers tier: `broker_scenes`.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.data_plane.copy_job import CopyJob
from rlmm.partition_state import PartitionState, TopicPolicy
from rlmm.rows import queries
from sim.tier.broker_scenes import BrokerScenes
from sim.tier.partition import Partition
from sim.tier.scenes_audit import ScenesAudit

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.world import World

IN_SO_MANY_SEEDS = 4
PERIOD_MS = 5_000
LOOK_MS, LOOKS_MAX = 500, 60
"""A scene waits for its next step, for so many looks."""
OLD_MS = 600_000
RETENTION_MS = 300_000
SLOW_S = 12
"""Seconds that the copy of what fills a lost range takes longer."""


class Scenes:
    """The scenes of a seed. `is_on` None: in some seeds."""

    def __init__(self, world: World, *, is_on: bool | None) -> None:
        self._world = world
        self.random = random = Random(f"{world.seed} scenes")
        drawn = not random.randrange(IN_SO_MANY_SEEDS)
        self.is_on = drawn if is_on is None else is_on
        self._of_brokers = bool(is_on)
        self.goes_on = False
        self.audit = ScenesAudit(world)
        self.brokers = BrokerScenes(world, self)
        self._playing: set[Partition] = set()

    def begin(self) -> None:
        """Play one now and then; not with a disaster, which tells nobody what lost claims cut."""
        if self.is_on and not self._world.disaster.is_on:
            self.goes_on = True
            self._world.brokers.retains = True
            self._go_on()

    def stop(self) -> None:
        """End all scenes."""
        if not self.goes_on:
            return
        self.goes_on = False
        self.brokers.stop()
        for partition in self._playing:
            partition.behind.clear()
        self._playing.clear()

    def _go_on(self) -> None:
        if not self.goes_on:
            return
        world, random = self._world, self.random
        partition = random.choice((*world.brokers.partitions, *world.delegated.partitions))
        if partition.is_tiered:
            if self._of_brokers:
                self.brokers.play(partition)
        elif partition in world.brokers.partitions:
            self._play(partition)
        world.schedule.after(1 + random.randrange(2 * PERIOD_MS), self._go_on)

    # ---- a scene

    def begins(self, partition: Partition) -> bool:
        """Begin a scene of a partition, unless one is played."""
        if partition in self._playing or partition.behind or partition.open_from is not None:
            return False
        self._playing.add(partition)
        return True

    def is_held(self, partition: Partition) -> bool:
        """True of a partition whose leader changes by a scene alone."""
        return partition in self._playing

    def ends(self, partition: Partition) -> None:
        """End a scene."""
        self._playing.discard(partition)
        partition.behind.clear()

    def once(
        self, partition: Partition, until: Callable[[], bool], then: Callable[[], None]
    ) -> None:
        """Go on once it is so, in the present leader epoch; else the scene ends."""
        self._look(partition, partition.epoch, until, then, LOOKS_MAX)

    def _look(
        self,
        partition: Partition,
        epoch: int,
        until: Callable[[], bool],
        then: Callable[[], None],
        looks: int,
    ) -> None:
        lives = self.goes_on and not partition.deleted and partition.epoch == epoch
        if not lives or not looks or partition not in self._playing:
            self.ends(partition)
        elif until():
            then()
        else:
            look = partial(self._look, partition, epoch, until, then, looks - 1)
            self._world.schedule.after(LOOK_MS, look)

    def state(self, tip: TopicIdPartition) -> PartitionState | None:
        return queries.partition_state(self._world.auditor.reference.rows, tip)

    def is_claimed(self, partition: Partition) -> bool:
        """True once the leader's claim stands."""
        state = self.state(partition.tip)
        claim = None if state is None else state.claim
        return claim is not None and claim.leader_epoch == partition.epoch

    # ---- topics that nodes copy

    def _is_up(self, broker: int) -> bool:
        return self._world.machine(broker).broker_up

    def _play(self, partition: Partition) -> None:
        leader, random = partition.leader, self.random
        others = [b for b in sorted(partition.replicas) if b != leader and self._is_up(b)]
        if leader not in partition.replicas or not self._is_up(leader) or not others:
            return
        other = random.choice(others)
        if self.begins(partition):
            random.choice((self._fill, self._heads))(partition, other)

    def _follow(self, partition: Partition, brokers: Sequence[int]) -> None:
        for each in brokers:
            if self._is_up(each):
                partition.hear(each)
                partition.replicate(each)

    def _seal(self, partition: Partition, age_ms: int) -> None:
        """Write a segment of its own, everywhere."""
        leader = partition.leading
        assert leader is not None
        for _ in range(2):
            partition.append_at([self._world.now_ms() - age_ms] * 2)
        self._follow(partition, sorted(partition.replicas))
        for replica in partition.replicas.values():
            if replica.end == leader.end:
                replica.roll()

    def _fill(self, partition: Partition, other: int) -> None:
        leader = partition.leading
        assert leader is not None
        self._follow(partition, sorted(partition.replicas))
        leader.roll()
        partition.replicas[other].roll()
        self._seal(partition, 0)
        end = leader.end
        self._seal(partition, OLD_MS)
        self._seal(partition, OLD_MS)
        partition.append(self._world.now_ms())
        self._follow(partition, sorted(partition.replicas))
        if partition.replicas[other].end != leader.end or leader.high_watermark != leader.end:
            self.ends(partition)
            return
        partition.behind.add(other)
        self._world.note(f"{partition.tip.topic}: n{partition.leader} drops all below {end}")
        leader.trim(end)
        last = leader.bases[-1]
        self.once(
            partition,
            lambda: self._is_lost(partition, end, last),
            partial(self._fills, partition, other),
        )

    def _is_lost(self, partition: Partition, end: int, copied: int) -> bool:
        state = self.state(partition.tip)
        return (
            state is not None
            and state.next_offset >= copied
            and any(each.end == end - 1 for each in state.lost_ranges)
        )

    def _fills(self, partition: Partition, other: int) -> None:
        """Let the broker lead that has what the other one dropped."""
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups and self._is_up(other):
            if not self._world.trash.is_on:
                policy = TopicPolicy(retention_ms=RETENTION_MS)
                self._world.admins.set_policy(self.random.choice(ups), partition.tip.topic, policy)
            unclean = other not in partition.in_sync
            self._world.brokers.elect(partition, other, unclean=unclean)
        self.ends(partition)

    async def uploading(self, machine: Machine, job: CopyJob) -> None:
        """Take long for the copy of what fills a lost range."""
        state = self.state(job.segment_id.partition) if self.goes_on else None
        if state is None or not any(
            each.start <= job.start_offset <= each.end < state.next_offset
            for each in state.lost_ranges
        ):
            return
        for second in range(SLOW_S if self.random.randrange(4) else 0):
            self.audit.under_way(machine, job, second)
            await asyncio.sleep(1)

    def _heads(self, partition: Partition, other: int) -> None:
        leader, brokers = partition.leading, sorted(partition.replicas)
        assert leader is not None
        self._follow(partition, brokers)
        if partition.replicas[other].end != leader.end or partition.leader not in partition.in_sync:
            self.ends(partition)
            return
        partition.behind.add(other)
        partition.drop_from_in_sync(other)
        self._seal(partition, 0)
        self._world.brokers.elect(partition, partition.leader, unclean=False)
        for _ in range(2):
            self._seal(partition, 0)
        partition.append(self._world.now_ms())
        partition.behind.add(other)
        last = leader.bases[-1]
        self.once(
            partition,
            lambda: self._is_copied(partition, last),
            partial(self._leave, partition, other),
        )

    def _is_copied(self, partition: Partition, end: int) -> bool:
        state = self.state(partition.tip)
        return state is not None and state.next_offset >= end

    def _leave(self, partition: Partition, other: int) -> None:
        """Let the leader's disk begin higher, and the other one lead."""
        before, leader = partition.leader, partition.leading
        if leader is None or len(leader.bases) < 3 or not self._is_up(other):
            self.ends(partition)
            return
        own = partition.epoch
        self._world.note(f"{partition.tip.topic}: n{before} keeps what is above {leader.bases[-2]}")
        leader.trim(leader.bases[-2])
        self._world.brokers.elect(partition, other, unclean=True)
        partition.behind.add(before)
        partition.append(self._world.now_ms())
        claimed = partial(self.is_claimed, partition)
        self.once(partition, claimed, partial(self._come_back, partition, before, own))

    def _come_back(self, partition: Partition, broker: int, own: int) -> None:
        if self._is_up(broker):
            self._world.brokers.elect(partition, broker, unclean=True)
            self.audit.comes_back(partition, own)
        self.ends(partition)
