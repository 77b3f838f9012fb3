"""Scenes of topics that brokers tier, of several steps each, like those of `scenes.py`.

late_end  a broker finishes a copy by a call that it makes only after a different broker led and the
          first one leads again
unheard   a broker takes itself for the leader while a different one is elected, unclean, and then
          the first one again: consumers read offsets that its disk lacks, before its node knows of
          its claim
gap       an unclean election cuts segments off, and the new leader's log start deletes them; then
          the broker leads again that has them on its disk and took them for copied
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from rlmm.rows import queries
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from sim.tier.partition import Partition
from sim.tier.plugin import UnavailableError
from sim.tier.tier_consumers import THROWN, short

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.replica import Replica
    from sim.tier.scenes import Scenes
    from sim.tier.tiering import TieringBroker
    from sim.tier.world import World

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
READS_MS = (0, 5, 20, 60, 120, 300, 700, 1_200, 2_000, 3_000)
SLOW_MS, SLOW_FOR_MS = 1_500, 3_000
SEGMENTS = 4
WAITS_S, LOOK_S = 30, 0.03
TRIES = 40


class BrokerScenes:
    """The scenes of brokers that tier. `unheard`: brokers that learn of no leader for a while;
    `keeping`: brokers whose local retention deletes nothing.
    """

    def __init__(self, world: World, scenes: Scenes) -> None:
        self._world = world
        self._scenes = scenes
        self.unheard: set[tuple[Partition, int]] = set()
        self.keeping: set[tuple[Partition, int]] = set()
        self._slow_until_ms: dict[int, int] = {}

    def stop(self) -> None:
        """Let all brokers learn of leaders, answer and delete as usual."""
        self.unheard.clear()
        self.keeping.clear()
        self._slow_until_ms.clear()

    def play(self, partition: Partition) -> None:
        """Play one of these scenes, unless a different scene uses the partition."""
        delegated, random = self._world.delegated, self._scenes.random
        held = delegated.rough.is_held(partition) or self._world.first_looks.is_held(partition)
        others = [
            each
            for each in sorted(partition.replicas)
            if each != partition.leader and each in delegated.brokers
        ]
        broker = delegated.brokers.get(partition.leader)
        if held or broker is None or not others or partition.leading is None:
            return
        other = random.choice(others)
        if self._scenes.begins(partition):
            random.choice((self._late_end, self._unheard, self._gap))(partition, broker, other)

    def _ends(self, partition: Partition, node_id: int) -> None:
        self.unheard.discard((partition, node_id))
        self.keeping.discard((partition, node_id))
        if not partition.deleted and node_id in partition.replicas:
            self._world.delegated.hear(partition, node_id)
        self._scenes.ends(partition)

    def _elect(self, partition: Partition, node_id: int) -> bool:
        """Elect a broker, unless it has left; the previous leader keeps its log as it is."""
        before = partition.leader
        there = node_id in partition.replicas and node_id in self._world.delegated.brokers
        if there:
            unclean = node_id not in partition.in_sync
            self._world.delegated.elect(partition, node_id, unclean=unclean)
            if unclean:
                partition.behind.add(before)
        return there

    async def _until(self, partition: Partition, epoch: int, what: str) -> bool:
        """Wait for the claim of a leader epoch; False if none is recorded, or the scene ends."""
        for _ in range(int(WAITS_S / LOOK_S)):
            if not self._scenes.goes_on or partition.deleted or partition.epoch != epoch:
                return False
            if self._scenes.is_claimed(partition):
                return True
            await asyncio.sleep(LOOK_S)
        self._world.note(f"{partition.tip.topic}: {what} does not come")
        return False

    # ---- a copy that ends late

    def _late_end(self, partition: Partition, broker: TieringBroker, other: int) -> None:
        self._world.loop.spawn(broker.life, self._copy(partition, broker, other))

    async def _copy(self, partition: Partition, broker: TieringBroker, other: int) -> None:
        try:
            await self._copy_and_end(partition, broker, other)
        except THROWN as error:
            self._world.note(f"broker {broker.node_id} is told {short(error)}")
        finally:
            self._ends(partition, broker.node_id)

    async def _copy_and_end(self, partition: Partition, broker: TieringBroker, other: int) -> None:
        replica = partition.replicas[broker.node_id]
        partition.append(self._world.now_ms())
        replica.roll()
        base, end = replica.bases[-2:]
        if not self._scenes.is_claimed(partition) or end > replica.last_stable:
            return
        row, files = broker.attempt(partition.tip, replica, base, end)
        self._world.delegated.audit.adds(row)
        await broker.plugin.add(row)
        custom = await broker.plugin.copy(files)
        for leader in (other, broker.node_id):
            if partition.deleted or not self._elect(partition, leader):
                return
            partition.append(self._world.now_ms())
            if not await self._until(partition, partition.epoch, f"the claim of n{leader}"):
                return
        self._world.note(f"broker {broker.node_id} ends a copy of its last leadership")
        for _ in range(TRIES):
            try:
                await broker.plugin.update(row, FINISHED, custom)
            except UnavailableError:  # it may not know its claim yet
                await asyncio.sleep(LOOK_S)
            else:
                return

    # ---- a broker that hears of no other leader

    def _write(self, partition: Partition, count: int) -> None:
        leader = partition.leading
        assert leader is not None
        for _ in range(count):
            partition.append(self._world.now_ms())
            leader.roll()

    def _falls_behind(self, partition: Partition, other: int) -> bool:
        """Let a broker have all until now, and nothing of what comes; False if it has not."""
        leader = partition.leading
        assert leader is not None
        partition.append(self._world.now_ms())
        self._world.delegated.hear(partition, other)
        self._world.delegated.replicate(partition, other)
        if partition.replicas[other].end != leader.end:
            return False
        partition.behind.add(other)
        partition.drop_from_in_sync(other)
        self._write(partition, SEGMENTS)
        partition.append(self._world.now_ms())
        return True

    def _unheard(self, partition: Partition, broker: TieringBroker, other: int) -> None:
        replica = partition.replicas[broker.node_id]
        if not self._falls_behind(partition, other):
            self._scenes.ends(partition)
            return
        begins = partition.replicas[other].end

        def is_dropped() -> bool:
            if broker.life.alive:
                broker.retain_locally(partition)
            return replica.bases[0] > begins

        self._scenes.once(
            partition, is_dropped, partial(self._cut, partition, broker.node_id, other, begins)
        )

    def _cut(self, partition: Partition, before: int, other: int, begins: int) -> None:
        self.unheard.add((partition, before))
        if not self._elect(partition, other):
            self._ends(partition, before)
            return
        self._write(partition, 2)
        self._scenes.once(
            partition,
            partial(self._scenes.is_claimed, partition),
            partial(self._lead_on, partition, before, begins),
        )
        self._world.schedule.after(1000 * WAITS_S, partial(self._hears, partition, before))

    def _hears(self, partition: Partition, node_id: int) -> None:
        if (partition, node_id) in self.unheard:
            self._ends(partition, node_id)

    def _lead_on(self, partition: Partition, broker: int, begins: int) -> None:
        self.unheard.discard((partition, broker))
        self._slow_until_ms[broker] = self._world.schedule.now_ms + SLOW_FOR_MS
        if self._elect(partition, broker):
            for delay_ms in READS_MS:
                read = partial(self._read, partition, broker, begins)
                self._world.schedule.after(delay_ms, read)
        self._ends(partition, broker)

    def _read(self, partition: Partition, node_id: int, begins: int) -> None:
        broker = self._world.delegated.brokers.get(node_id)
        replica = partition.replicas.get(node_id)
        if broker is None or replica is None or partition.deleted or not self._scenes.goes_on:
            return
        first = max(begins, replica.log_start)
        if partition.leading is replica and first < replica.bases[0]:
            offset = self._scenes.random.randrange(first, replica.bases[0])
            self._world.loop.spawn(broker.life, broker.consumers.consume(partition, offset))

    def answer_ms(self, machine: Machine) -> int:
        """The time by which a broker answers its node later."""
        until_ms = self._slow_until_ms.get(machine.node_id, 0)
        return SLOW_MS if self._world.schedule.now_ms < until_ms else 0

    # ---- a gap in the tier

    def _gap(self, partition: Partition, broker: TieringBroker, other: int) -> None:
        replica = partition.replicas[broker.node_id]
        self.keeping.add((partition, broker.node_id))
        if not self._falls_behind(partition, other):
            self._ends(partition, broker.node_id)
            return
        last = replica.bases[-1] - 1
        self._scenes.once(
            partition,
            lambda: replica.highest_copied >= last,
            partial(self._pass, partition, replica, other),
        )

    def _pass(self, partition: Partition, replica: Replica, other: int) -> None:
        """Let another leader write over half of what is copied, and delete all below."""
        before, begins = partition.leader, partition.replicas[other].end
        borders = [base for base in replica.bases if base > begins]
        if len(borders) < 3 or not self._elect(partition, other):
            self._ends(partition, before)
            return
        end, leader = borders[len(borders) // 2], partition.replicas[other]
        while leader.end < end:
            partition.append(self._world.now_ms(), count=1)
        leader.roll()
        partition.append(self._world.now_ms())
        if leader.high_watermark >= end:
            self._world.note(f"{partition.tip.topic}: records below {end} are deleted")
            self._world.delegated.audit.takes(partition, leader, end)
            partition.delete_records(other, end)
        self._scenes.once(
            partition,
            lambda: not any(map(partial(_is_cut, begins, end), self._rows(partition))),
            partial(self._lead_again, partition, before),
        )
        self._world.schedule.after(
            2_000 * WAITS_S, partial(self.keeping.discard, (partition, before))
        )

    def _rows(self, partition: Partition) -> list[RemoteLogSegmentMetadata]:
        rows = self._world.auditor.reference.rows
        return list(queries.list_segments(rows, partition.tip))

    def _lead_again(self, partition: Partition, broker: int) -> None:
        self._elect(partition, broker)
        self._ends(partition, broker)


def _is_cut(begins: int, end: int, row: RemoteLogSegmentMetadata) -> bool:
    return begins <= row.start_offset and row.end_offset < end
