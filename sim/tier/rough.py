"""Awkward moments of partitions that brokers tier, which chance hardly ever hits.

there_and_back  an unclean leader with a lower log, then the one before it with all that it had: the
                epochs of its log come back
lower           ... and none comes back: tails diverge; consumers read right behind any election
single          segments of one offset
brief           leaders of one record each, amid a segment
head            a replica's log starts above older history, and its broker comes to lead and tier
delete_head     DeleteRecords at a segment's border
look            a broker asks for lists, by epoch and whole, and what is copied
read            consumers read; between a look-up and its fetch time passes
stray           a broker sends a write out of its order: marks, ends and adds of any segment
second          a broker starts anew, and the plug-in of its last life goes on for a while

Beside these calls come late (`rough_calls`), and lists are kept, changed and paged as the plug-in
does it.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import rlm.delegated.segment_lists
from rlmm.rows import queries
from sim.nodes.loop import Life
from sim.tier.partition import Partition
from sim.tier.replica import Replica
from sim.tier.rough_calls import RoughCalls
from sim.tier.tier_consumers import THROWN, short

if TYPE_CHECKING:
    from sim.tier.delegated import Delegated
    from sim.tier.tiering import TieringBroker
    from sim.tier.world import World

KINDS = frozenset({"elect", "unclean", "leaves_off"})
"""Deeds of brokers that each rough seed has; of these it draws some."""
SOME_KINDS = ("restart", "move", "recreate", "delete_records", "retention", "late_topic", "pauses")
DEEDS = (
    "there_and_back", "there_and_back", "lower", "single", "brief", "head", "delete_head", "look",
    "stray", "second",
)  # fmt: skip
DEEDS_OF_A_SEED = 3
"""Each seed draws so many, and reads."""
SEEDS_OF_FIVE = 3
PERIODS_MS = (700, 2_000, 4_000)
TIERED_AFTER = 6
"""Deeds after which brokers tier a topic that the nodes copied."""
READS = 3
SEGMENTS = 2
"""The segments that a new leader writes: its disk lets those below go."""
SETTLES_MS = (2_500, 5_000, 9_000)
THERE_MS, BACK_MS = (2_000, 8_000), (4_000, 12_000, 25_000)
"""The times until an election and the one back: copies and expirations may come between."""
LINGERS_MS_MAX = 25_000
PAGE_ROWS = (1, 3, 500)


class Rough:
    """The moments of a seed. `wanted` None: in some seeds; deeds: these alone."""

    def __init__(
        self, world: World, delegated: Delegated, wanted: bool | frozenset[str] | None
    ) -> None:
        self._world = world
        self._delegated = delegated
        self.random = random = Random(f"{world.seed} rough")
        drawn = random.randrange(5) < SEEDS_OF_FIVE
        self.is_on = drawn if wanted is None else bool(wanted)
        self.kinds = KINDS | {kind for kind in SOME_KINDS if random.randrange(2)}
        deeds = random.sample(DEEDS, DEEDS_OF_A_SEED)
        if wanted is not None and not isinstance(wanted, bool):
            deeds = sorted(wanted)
        self._deeds = ("read", *deeds)
        self._period_ms = random.choice(PERIODS_MS)
        self._page_rows = random.choice(PAGE_ROWS)
        self._goes_on = False
        self.calls = RoughCalls(world, random)
        self._apart: set[tuple[Partition, int]] = set()
        self._scenes: set[Partition] = set()
        self._lingering: list[Life] = []
        self._read_to: dict[tuple[Partition, int], int] = {}
        self._reading: set[Partition] = set()

    @contextmanager
    def pages(self) -> Iterator[None]:
        """Lists have small pages within the block."""
        if not self.is_on:
            yield
            return
        with patch.object(rlm.delegated.segment_lists, "PAGE_ROWS", self._page_rows):
            yield

    def begin(self) -> None:
        """Act now and then."""
        if self.is_on:
            self._goes_on = self.calls.goes_on = True
            self._go_on()

    def stop(self) -> None:
        """Stop the deeds; nobody is apart, and no plug-in lingers."""
        self._goes_on = self.calls.goes_on = False
        self._apart.clear()
        self._scenes.clear()
        for life in self._lingering:
            life.alive = False
            self._world.loop.kill(life)
        self._lingering.clear()

    def _go_on(self) -> None:
        if self._goes_on:
            self._act(self.random.choice(self._delegated.partitions))
            self._world.schedule.after(1 + self.random.randrange(2 * self._period_ms), self._go_on)

    def _act(self, partition: Partition) -> None:
        broker = self._delegated.brokers.get(partition.leader)
        leader = partition.leading
        if broker is None or leader is None:
            return
        if not partition.is_tiered and not self.random.randrange(TIERED_AFTER):
            self._delegated.modes.let_tier(partition)
        match self.random.choice(self._deeds):
            case "there_and_back":
                self._there_and_back(partition)
            case "lower" if partition not in self._scenes:
                self._elect_lowest(partition)
            case "single":
                for _ in range(1 + self.random.randrange(3)):
                    partition.append(self._world.now_ms(), count=1)
                    leader.roll()
            case "brief" if partition not in self._scenes:
                for _ in range(SEGMENTS):
                    self._lead_briefly(partition)
            case "head":
                self._begin_above(partition)
            case "delete_head":
                self._delete_head(partition, leader)
            case "look":
                of = self._delegated.brokers[self.random.choice(sorted(self._delegated.brokers))]
                self._world.loop.spawn(of.life, self._look(of, partition))
            case "read":
                self._settle(partition)
            case "stray":
                of = self._delegated.brokers[self.random.choice(sorted(self._delegated.brokers))]
                self._world.loop.spawn(of.life, self.calls.stray(of, partition))
            case _:
                self._delegated.restart(self._world.machine(broker.node_id), off_ms_max=1_000)

    # ---- elections

    def is_held(self, partition: Partition) -> bool:
        """True of a partition whose leader changes by a scene alone."""
        return partition in self._scenes

    def is_apart(self, partition: Partition, node_id: int) -> bool:
        """True of a follower that does not fetch now."""
        return (partition, node_id) in self._apart

    def elected(self, partition: Partition) -> None:
        """Let consumers read right behind an election, and what the new leader's disk lets go."""
        if not self._goes_on:
            return
        self.calls.elected()
        broker = self._delegated.brokers.get(partition.leader)
        if broker is not None:
            for _ in range(READS):
                delay_ms = self.random.choice((0, 20, 300, 2_000))
                self._world.schedule.after(delay_ms, partial(self._read, broker, partition))
        for delay_ms in SETTLES_MS:
            self._world.schedule.after(delay_ms, partial(self._settle, partition))

    def _settle(self, partition: Partition, node_id: int | None = None) -> None:
        """Let a broker, the leader if none is given, keep no more than it has to."""
        node_id = partition.leader if node_id is None else node_id
        broker, there = self._delegated.brokers.get(node_id), node_id in partition.replicas
        if not self._goes_on or partition.deleted or not partition.is_tiered:
            return
        if broker is not None and there:
            broker.retain_locally(partition)
            for _ in range(READS):
                self._read(broker, partition)

    def _lowest(self, partition: Partition) -> int | None:
        others = [
            each
            for each in sorted(partition.replicas)
            if each != partition.leader and each in self._delegated.brokers
        ]
        return min(others, key=lambda each: partition.replicas[each].end, default=None)

    def _elect_lowest(self, partition: Partition) -> None:
        lowest = self._lowest(partition)
        if lowest is not None:
            is_unclean = lowest not in partition.in_sync
            self._delegated.elect(partition, lowest, unclean=is_unclean)
            for _ in range(SEGMENTS):
                self._write(partition)

    def _write(self, partition: Partition) -> None:
        """Let the leader write, and seal it."""
        leader = partition.leading
        if partition.deleted or leader is None:
            return
        if partition.leader in self._delegated.brokers:
            for _ in range(1 + self.random.randrange(3)):
                partition.append(self._world.now_ms())
            leader.roll()

    def _lead_briefly(self, partition: Partition) -> None:
        """Let a leader write one record, and another lead then."""
        following = self._lowest(partition)
        if following is not None:
            self._delegated.hear(partition, following)
            partition.append(self._world.now_ms(), count=1)
            self._delegated.replicate(partition, following)
            is_unclean = following not in partition.in_sync
            self._delegated.elect(partition, following, unclean=is_unclean)

    def _there_and_back(self, partition: Partition) -> None:
        """A scene of some steps, which no other election disturbs."""
        before, between = partition.leader, self._lowest(partition)
        if between is None or partition in self._scenes or not partition.is_tiered:
            return
        self._scenes.add(partition)
        for _ in range(SEGMENTS):  # the follower's end amid a segment, and in several itself
            partition.append(self._world.now_ms())
            self._delegated.replicate(partition, between)
            partition.replicas[between].roll()
        partition.drop_from_in_sync(between)
        self._apart.add((partition, between))
        partition.append(self._world.now_ms(), count=1)  # a cut right behind it, or before
        self._write(partition)
        there_ms, back_ms = self.random.choice(THERE_MS), self.random.choice(BACK_MS)
        deletes = self.random.randrange(2)
        steps: list[tuple[int, Callable[[], None]]] = [
            (there_ms - 500, partial(self._settle, partition, between)),
            (there_ms, partial(self._take_over, partition, before, between)),
            (there_ms + back_ms // 2, partial(self._write, partition)),
            (there_ms + back_ms, partial(self._take_over, partition, between, before)),
            (there_ms + back_ms + SETTLES_MS[-1], partial(self._scenes.discard, partition)),
        ]
        if deletes:
            steps.append((there_ms + back_ms // 3, partial(self._delete_tail, partition)))
        for at_ms, step in steps:
            self._world.schedule.after(at_ms, step)

    def _take_over(self, partition: Partition, before: int, now: int) -> None:
        """Let a broker lead in the place of another, which keeps its log as it is."""
        self._apart.discard((partition, now))
        there = now in partition.replicas and now in self._delegated.brokers
        if self._goes_on and not partition.deleted and there and partition.leader == before:
            self._apart.add((partition, before))
            self._delegated.elect(partition, now, unclean=now not in partition.in_sync)
            for _ in range(SEGMENTS):
                self._write(partition)

    def _delete_tail(self, partition: Partition) -> None:
        """DeleteRecords of nearly all."""
        leader = partition.leading
        if leader is not None and not partition.deleted and partition.is_tiered:
            self._delete_below(partition, leader, leader.high_watermark)

    # ---- log starts

    def _begin_above(self, partition: Partition) -> None:
        """Trim a replica to its last segment, of a topic that the nodes copy; it may lead then."""
        if partition.is_tiered:
            return
        node_id = self.random.choice(sorted(partition.replicas))
        replica = partition.replicas[node_id]
        start = replica.bases[-1]
        below = [each for each in replica.batches if each.base < start]
        if not all(self._delegated.audit.has(partition, each) for each in below):
            return
        self._world.note(f"{partition.tip.topic}: n{node_id} begins at {start}")
        replica.trim(start)
        if node_id in partition.in_sync and node_id in self._delegated.brokers:
            self._delegated.elect(partition, node_id, unclean=False)
            self._delegated.modes.let_tier(partition)

    def _delete_head(self, partition: Partition, leader: Replica) -> None:
        rows = queries.list_segments(self._world.auditor.reference.rows, partition.tip)
        ends = sorted({row.end_offset + 1 for row in rows})
        borders = [each for each in ends if leader.log_start < each <= leader.high_watermark][:2]
        if borders and partition.is_tiered:
            self._delete_below(partition, leader, self.random.choice(borders))

    def _delete_below(self, partition: Partition, leader: Replica, start: int) -> None:
        if start > leader.log_start:
            self._world.note(f"{partition.tip.topic}: records below {start} are deleted")
            self._delegated.audit.takes(partition, leader, start)
            partition.delete_records(partition.leader, start)

    # ---- what brokers ask and send

    def _read(self, broker: TieringBroker, partition: Partition) -> None:
        replica = partition.replicas.get(broker.node_id)
        if replica is None or partition.deleted or not partition.is_tiered:
            return
        if broker.life.alive and replica.log_start < replica.bases[0]:
            above = self.random.randrange(2)  # the newest are what a cut concerns
            first = max(replica.log_start, replica.bases[0] - 12) if above else replica.log_start
            offset = self.random.randrange(first, replica.bases[0])
            self._world.loop.spawn(broker.life, broker.consumers.consume(partition, offset))

    async def _look(self, broker: TieringBroker, partition: Partition) -> None:
        tip, replica = partition.tip, partition.replicas.get(broker.node_id)
        known = broker.known.get(tip)
        if known is None or replica is None or not replica.epochs:
            return
        epoch = self.random.choice(replica.epochs).epoch
        try:
            if known.leads:
                await broker.plugin.rows(tip, epoch)
                await broker.plugin.rows(tip)
            await broker.highest(tip, replica, epoch)
        except THROWN as error:
            self._world.note(f"broker {broker.node_id} is told {short(error)}")

    def stops(self, broker: TieringBroker) -> None:
        """Let the plug-in of a broker that stops go on for a while."""
        if self._goes_on and self.random.randrange(2):
            life = Life(f"{broker.life.name} lingers")
            self._lingering.append(life)
            self._world.loop.spawn(life, broker.plugin.announce_on())
            self._world.schedule.after(
                self.random.randrange(LINGERS_MS_MAX), partial(self._end, life)
            )

    def _end(self, life: Life) -> None:
        life.alive = False
        self._world.loop.kill(life)

    # ---- healing

    def heal(self, partition: Partition) -> None:
        """Let a consumer read all that is in the tier alone."""
        broker = self._delegated.brokers.get(partition.leader)
        reads = broker is not None and partition.is_tiered and partition not in self._reading
        if self.is_on and broker is not None and reads:
            self._reading.add(partition)
            self._world.loop.spawn(broker.life, self._read_all(broker, partition))

    async def _read_all(self, broker: TieringBroker, partition: Partition) -> None:
        replica = partition.replicas[broker.node_id]
        try:
            at = self._at(partition)
            while partition.leading is replica and at < replica.bases[0]:
                following = await broker.consumers.consume(partition, at)
                if following is None:
                    following = self._behind_taken(partition, replica, at)
                if following is None:
                    return
                at = self._read_to[partition, broker.node_id] = following
        finally:
            self._reading.discard(partition)

    def _behind_taken(self, partition: Partition, replica: Replica, at: int) -> int | None:
        """The offset behind what retention or DeleteRecords took, at another leader."""
        for batch in replica.batches:
            if batch.base <= at <= batch.last and self._delegated.audit.is_taken(partition, batch):
                return batch.last + 1
            if batch.base <= at <= batch.last and partition.is_deleted(batch, at + 1):
                return at + 1
        return None

    def _at(self, partition: Partition) -> int:
        leader = partition.leading
        assert leader is not None
        return max(self._read_to.get((partition, partition.leader), 0), leader.log_start)

    def left_to_do(self, partition: Partition) -> Iterator[str]:
        """Offsets that no consumer has read yet."""
        leader = partition.leading
        if self.is_on and partition.is_tiered and leader is not None:
            at = self._at(partition)
            if at < leader.bases[0]:
                yield f"{at} to {leader.bases[0] - 1} of {partition.tip} was not read"
