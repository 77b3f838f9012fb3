"""Producers with transactions over several segments, whose markers lie apart from their records: in
a tail that an unclean election cuts, in a lost range or behind one.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from rlmm.rows import queries
from sim.tier.committed_audit import CommittedAudit
from sim.tier.committed_readers import NEAR, CommittedReaders
from sim.tier.decided import ABORT, COMMIT, opened
from sim.tier.partition import Partition

if TYPE_CHECKING:
    from sim.tier.replica import Replica
    from sim.tier.world import World

IN_SO_MANY_SEEDS = 4
PERIOD_MS = 3_000
PRODUCERS = (11, 12, 13)
LOOK_MS, LOOKS_MAX = 1_500, 30
"""A scene waits for copies, for so many looks."""
READ_AMID_MS = (500, 3_000, 10_000)
CONSUMED_MS = (2_500, 5_000, 9_000, 20_000, 40_000)
SEGMENTS = 3


class Transacting:
    """The producers, and what befalls their markers."""

    def __init__(self, world: World, *, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"{world.seed} apart")
        drawn = not random.randrange(IN_SO_MANY_SEEDS)
        self.is_on = self._goes_on = drawn if is_on is None else is_on
        self.audit = CommittedAudit(world)
        self.readers = CommittedReaders(world, self, random)
        self._period_ms = random.choice((PERIOD_MS, 2 * PERIOD_MS))
        self._scenes: set[Partition] = set()

    def take(self, partition: Partition) -> None:
        """Let a partition have transactions, from its first record on."""
        if self.is_on:
            partition.has_transactions = True
            for replica in partition.replicas.values():
                replica.has_transactions = True

    def begin(self) -> None:
        """Write and decide now and then."""
        if self.is_on:
            self._world.schedule.after(1 + self._random.randrange(self._period_ms), self._go_on)
            self.readers.begin()

    def stop(self) -> None:
        """End all transactions; nobody falls behind any more."""
        if not self._goes_on:
            return
        self._goes_on = False
        for partition in self.partitions():
            partition.behind.clear()
            self._end_all(partition)

    def partitions(self) -> list[Partition]:
        """The living ones."""
        return [*self._world.brokers.partitions, *self._world.delegated.partitions]

    def is_delegated(self, partition: Partition) -> bool:
        """True of a topic of brokers that tier by themselves, now or later."""
        return partition in self._world.delegated.partitions

    def _go_on(self) -> None:
        if not self._goes_on:
            return
        partition = self._random.choice(self.partitions())
        if (leader := self._leading(partition)) is not None:
            self._act(partition, leader)
        self._world.schedule.after(1 + self._random.randrange(self._period_ms), self._go_on)

    def _act(self, partition: Partition, leader: Replica) -> None:
        self._world.events += 1
        draw = self._random.randrange(20)
        if draw < 8:
            self._write(partition, self._random.choice(PRODUCERS))
        elif draw < 15:
            self._end_one(partition)
        elif draw < 16:
            leader.roll()
        elif partition not in self._scenes:
            if draw < 18 or self.is_delegated(partition):
                self._fall_behind(partition, leader)
            else:
                self._lose_marker(partition, leader)

    def _is_up(self, partition: Partition, broker: int) -> bool:
        if self.is_delegated(partition):
            return broker in partition.replicas and broker in self._world.delegated.brokers
        return broker in partition.replicas and self._world.machine(broker).broker_up

    def _leading(self, partition: Partition) -> Replica | None:
        return partition.leading if self._is_up(partition, partition.leader) else None

    # ---- what producers write

    def _write(self, partition: Partition, producer: int) -> None:
        count = self._random.choice((1, 1, 2, 3))
        partition.append_of(producer, self._world.now_ms(), count)

    def _end(self, partition: Partition, producer: int, outcome: str | None = None) -> None:
        outcome = outcome or self._random.choice((ABORT, ABORT, COMMIT))
        leader = partition.leading
        if leader is not None:
            name = partition.tip.topic
            self._world.note(f"{name}: {outcome} of producer {producer} at {leader.end}")
        partition.append_marker(producer, self._world.now_ms(), outcome)

    def _end_one(self, partition: Partition) -> None:
        leader = partition.leading
        producers = () if leader is None else sorted(opened(leader.batches))
        if producers:
            self._end(partition, self._random.choice(producers))

    def _end_all(self, partition: Partition) -> None:
        leader = partition.leading
        for producer in () if leader is None else sorted(opened(leader.batches)):
            self._end(partition, producer)

    def _replicate(self, partition: Partition) -> None:
        """Let those that are up fetch, and hear what is committed."""
        for _ in range(2):
            for broker in sorted(partition.replicas):
                if self._is_up(partition, broker):
                    partition.hear(broker)
                    partition.replicate(broker)

    # ---- a marker in a tail that is cut

    def _fall_behind(self, partition: Partition, leader: Replica) -> None:
        """Let a follower have a transaction's records without its marker; it is elected, unclean,
        once the tier has the marker.
        """
        random, producer = self._random, self._random.choice(PRODUCERS)
        others = [each for each in sorted(partition.replicas) if each != partition.leader]
        others = [each for each in others if self._is_up(partition, each)]
        if not others or partition.behind or self._is_held(partition):
            return
        lagging = random.choice(others)
        if random.randrange(2):
            leader.roll()
        self._write(partition, producer)
        self._replicate(partition)
        partition.behind.add(lagging)
        partition.drop_from_in_sync(lagging)
        self._world.note(f"{partition.tip.topic}: n{lagging} misses what decides {producer}")
        for _ in range(random.randrange(3)):
            self._write(partition, random.choice(PRODUCERS))
        if not random.randrange(4):
            leader.roll()
        self._end_all(partition)
        partition.append(self._world.now_ms())
        leader.roll()
        self._replicate(partition)
        self._scenes.add(partition)
        self._come_back(partition, lagging, leader.end, LOOKS_MAX)

    def _is_held(self, partition: Partition) -> bool:
        """True while another scene decides who leads."""
        world = self._world
        return world.delegated.rough.is_held(partition) or world.first_looks.is_held(partition)

    def _come_back(self, partition: Partition, broker: int, end: int, looks: int) -> None:
        """Elect who fell behind once what it lacks is copied, or after some looks."""
        if broker not in partition.behind or partition.deleted or not self._goes_on:
            self._scenes.discard(partition)
            return
        if looks and not self._is_copied(partition, end):
            look = partial(self._come_back, partition, broker, end, looks - 1)
            self._world.schedule.after(LOOK_MS, look)
            return
        partition.behind.discard(broker)
        self._scenes.discard(partition)
        if not self._is_up(partition, broker) or partition.leader == broker:
            return
        if self._is_held(partition):
            return
        cut = partition.replicas[broker].end
        brokers = self._world.delegated if self.is_delegated(partition) else self._world.brokers
        brokers.elect(partition, broker, unclean=broker not in partition.in_sync)
        if self._random.randrange(2):
            self._write(partition, self._random.choice(PRODUCERS))
        if self._random.randrange(2):
            self._end_all(partition)
            self._replicate(partition)
            partition.replicas[broker].roll()
        if self.is_delegated(partition):
            self._let_consumers_read(partition, cut)
        for delay_ms in READ_AMID_MS:
            at = partial(self.readers.read_near, partition, partition.replicas[broker].end)
            self._world.schedule.after(delay_ms, at)

    def _let_consumers_read(self, partition: Partition, cut: int) -> None:
        """Let the new leader's disk keep little, so that consumers read at the cut in the tier."""
        for _ in range(SEGMENTS):
            partition.append(self._world.now_ms())
            if (leader := partition.leading) is not None:
                leader.roll()
        self._replicate(partition)
        for delay_ms in CONSUMED_MS:
            self._world.schedule.after(delay_ms, partial(self._consume, partition, cut))

    def _consume(self, partition: Partition, cut: int) -> None:
        broker = self._world.delegated.brokers.get(partition.leader)
        replica = partition.leading
        if broker is None or replica is None or partition.deleted or not partition.is_tiered:
            return
        broker.retain_locally(partition)
        at = max(replica.log_start, cut - 1 - self._random.randrange(NEAR))
        if at < replica.bases[0]:
            self._world.loop.spawn(broker.life, broker.consumers.consume(partition, at))

    def _is_copied(self, partition: Partition, end: int) -> bool:
        rows = self._world.auditor.reference.rows
        state = queries.partition_state(rows, partition.tip)
        return state is not None and state.next_offset >= end

    # ---- a marker in a lost range, or behind one

    def _lose_marker(self, partition: Partition, leader: Replica) -> None:
        """Let a transaction's records be copied, and what decides it go before it is."""
        random, producer = self._random, self._random.choice(PRODUCERS)
        if partition.behind or self._is_held(partition):
            return
        self._end_all(partition)
        leader.roll()
        self._write(partition, producer)
        if random.randrange(2):
            partition.append(self._world.now_ms())
        leader.roll()
        end = leader.end
        partition.append(self._world.now_ms())
        if random.randrange(3):
            self._end(partition, producer)
        else:
            self._go_on_behind_hole(partition, leader, producer)
        self._replicate(partition)
        self._scenes.add(partition)
        self._delete_rest(partition, partition.epoch, end, LOOKS_MAX)

    def _go_on_behind_hole(self, partition: Partition, leader: Replica, producer: int) -> None:
        """Lose a segment of a transaction that is decided in the next one."""
        self._write(partition, producer)
        leader.roll()
        self._replicate(partition)
        lost = leader.bases[-2]
        for replica in partition.replicas.values():
            if lost in replica.bases[:-1]:
                replica.lose(lost)
        self._end(partition, producer)

    def _delete_rest(self, partition: Partition, epoch: int, end: int, looks: int) -> None:
        """Delete all that brokers have once the tier has what is below `end`."""
        goes_on = partition.epoch == epoch and not partition.deleted and self._goes_on
        if not goes_on or not looks:
            self._scenes.discard(partition)
            return
        leader = self._leading(partition)
        if leader is None or not self._is_copied(partition, end):
            look = partial(self._delete_rest, partition, epoch, end, looks - 1)
            self._world.schedule.after(LOOK_MS // 3, look)
            return
        self._scenes.discard(partition)
        self._replicate(partition)
        if leader.high_watermark < leader.end:
            return
        self._world.note(f"{partition.tip.topic}: all below {leader.end} is deleted at once")
        for replica in self._with_all(partition, leader):
            replica.roll()
            replica.trim(replica.end)
        partition.append(self._world.now_ms())
        for delay_ms in READ_AMID_MS:
            at = partial(self.readers.read_near, partition, end)
            self._world.schedule.after(delay_ms, at)

    def _with_all(self, partition: Partition, leader: Replica) -> Iterator[Replica]:
        for replica in partition.replicas.values():
            if replica.end == leader.end == replica.high_watermark:
                yield replica
