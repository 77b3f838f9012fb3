"""Cuts of a log where the tier's lower end and holes are, and leaders that are replaced while they
record: brokers that fall behind and are elected unclean below a log start or into a lost range,
proposals that hang while an election happens, segments of one offset, times that do not ascend.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.apply import partition_of
from rlmm.metadata_log import Proposal
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import decode
from rlmm.rows import queries
from sim.tier.lower_end_audit import kind_of
from sim.tier.partition import Partition

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

IN_SO_MANY_SEEDS = 4
PERIOD_MS = 5_000
LOOK_MS, LOOKS_MIN, LOOKS_MAX = 1_500, 8, 40
"""A broker that fell behind waits for the tier to pass it, for so many looks."""
RECORDING_ONE_IN = 3
SOON_MS, LATE_MS = 1_500, 9_000
"""Latest commit of a proposal amid an election: before the next claim, or mostly behind it."""
OLD_MS_MAX = 600_000
RETENTION_MS = 20_000
BATCHES_MAX = 3


class Cuts:
    """Falling behind and coming back. `reached` counts rare situations of the run."""

    def __init__(self, world: World, *, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"cuts {world.seed}")
        drawn = not random.randrange(IN_SO_MANY_SEEDS)
        self.is_on = self._goes_on = drawn if is_on is None else is_on
        self.reached: Counter[str] = Counter()

    def begin(self) -> None:
        """Let it happen now and then, beside brokers that delete what is not copied."""
        if self._goes_on:
            self._world.brokers.retains = True
            self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self._go_on)

    def stop(self) -> None:
        """Nothing more falls behind, and nothing hangs."""
        self._goes_on = False
        for partition in self._world.brokers.partitions:
            partition.behind.clear()

    def _go_on(self) -> None:
        if not self._goes_on:
            return
        partition = self._random.choice(self._world.brokers.partitions)
        draw = self._random.randrange(10)
        if self._is_up(partition, partition.leader):
            if draw < 3:
                self._append(partition)
            elif draw < 7:
                self._fall_behind(partition)
            elif draw < 9:
                self._begin_anew(partition)
            else:
                self._set_policy(partition.tip)
        self.begin()

    def _is_up(self, partition: Partition, broker: int) -> bool:
        return broker in partition.replicas and self._world.machine(broker).broker_up

    # ---- what is written

    def _append(self, partition: Partition, *, old: bool = False) -> None:
        """Write batches whose times do not ascend, some into a segment of their own."""
        random, now_ms = self._random, self._world.now_ms()
        for _ in range(1 + random.randrange(BATCHES_MAX)):
            newest_ms = now_ms - OLD_MS_MAX if old else now_ms
            count = random.choice((1, 1, 2, 3))
            times = [newest_ms - random.randrange(OLD_MS_MAX) for _ in range(count)]
            partition.append_at(times)
            if random.randrange(2) and (leader := partition.leading) is not None:
                leader.roll()

    def _set_policy(self, tip: TopicIdPartition) -> None:
        """Let the tier keep little, so that its log start moves."""
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups and not self._world.trash.is_on:
            policy = self._random.choice(
                (TopicPolicy(retention_ms=RETENTION_MS), TopicPolicy(retention_bytes=300))
            )
            self._world.admins.set_policy(self._random.choice(ups), tip.topic, policy)

    # ---- who falls behind

    def _fall_behind(self, partition: Partition) -> None:
        """Let a follower miss what is then expired, or passed over before it could be copied; it is
        elected later, unclean.
        """
        random, leader = self._random, partition.leading
        others = [each for each in sorted(partition.replicas) if each != partition.leader]
        if leader is None or not others or partition.behind:
            return
        lagging = random.choice(others)
        self._append(partition, old=True)
        for broker in others:
            partition.hear(broker)
            partition.replicate(broker)
        partition.behind.add(lagging)
        partition.drop_from_in_sync(lagging)
        self._world.note(f"{partition.tip.topic}: n{lagging} falls behind, {leader.end} is its end")
        self._append(partition, old=True)
        leader.roll()
        for broker in others:
            partition.replicate(broker)
        if random.randrange(2):
            self._set_policy(partition.tip)
        elif leader.high_watermark == leader.end:
            self._world.note(f"{partition.tip.topic}: n{partition.leader} deletes it at once")
            leader.trim(leader.end)
        self._come_back(partition, lagging, LOOKS_MIN + random.randrange(LOOKS_MAX))

    def _come_back(self, partition: Partition, broker: int, looks: int) -> None:
        """Elect who fell behind once the tier's lower end or a lost range has passed the end of its
        log, or after some looks; that cuts the log there.
        """
        if broker not in partition.behind or partition.deleted or not self._goes_on:
            return
        is_up = self._is_up(partition, broker)
        is_passed = is_up and self._is_passed(partition, partition.replicas[broker].end)
        if looks and (not is_passed or self._random.randrange(2)):  # some is copied behind it
            look = partial(self._come_back, partition, broker, looks - 1)
            self._world.schedule.after(LOOK_MS, look)
            return
        partition.behind.discard(broker)
        before = partition.leader
        if not is_up or before == broker:
            return
        self._world.brokers.elect(partition, broker, unclean=broker not in partition.in_sync)
        if self._random.randrange(2) and not partition.behind:
            # Its epochs come back, with what was copied of them and what was not.
            partition.behind.add(before)
            partition.drop_from_in_sync(before)
            self._come_back(partition, before, LOOKS_MIN)

    def _is_passed(self, partition: Partition, offset: int) -> bool:
        state = queries.partition_state(self._world.auditor.reference.rows, partition.tip)
        return state is not None and (
            offset < state.log_start_offset
            or any(each.start <= offset <= each.end for each in state.lost_ranges)
        )

    def _begin_anew(self, partition: Partition) -> None:
        """Make a topic again whose first leader deletes its first records before any is copied."""
        self._world.brokers.delete_topic(partition)
        made = self._world.brokers.create(partition.tip.topic)
        if self._is_up(made, made.leader):
            self._fall_behind(made)

    # ---- who is replaced while it records

    def while_recording(self, process: Process, proposals: tuple[Proposal, ...]) -> int:
        """Time in ms by which proposals come later, while another leader is elected."""
        if not self._goes_on:
            return 0
        record = decode(proposals[0].control_type, proposals[0].value)
        tip = partition_of(record)
        claims = isinstance(record, PartitionClaim)  # and records at once behind it
        if tip is None or not (claims or kind_of(record)):
            return 0
        found = [each for each in self._world.brokers.partitions if each.tip == tip]
        if not found or self._random.randrange(RECORDING_ONE_IN):
            return 0
        (partition,) = found
        if partition.leader != process.machine.node_id:
            return 0
        delay_ms = 2 + self._random.randrange(self._random.choice((SOON_MS, LATE_MS)))
        amid_ms = 1 + self._random.randrange(min(delay_ms, 200))
        self._world.schedule.after(amid_ms, partial(self._replace, partition, partition.epoch))
        return delay_ms

    def _replace(self, partition: Partition, epoch: int) -> None:
        """Elect another leader, unclean one that fell behind, or the same one anew."""
        alive = [each for each in sorted(partition.replicas) if self._is_up(partition, each)]
        if not self._goes_on or partition.deleted or partition.epoch != epoch or not alive:
            return
        behind = [each for each in alive if each in partition.behind]
        clean = [each for each in alive if each in partition.in_sync]
        broker = self._random.choice(behind or clean or alive)
        self._world.brokers.elect(partition, broker, unclean=broker not in partition.in_sync)

    # ---- how often

    def note(self, situation: str, *, holds: bool = True) -> None:
        """Count a situation that was reached."""
        if holds:
            self.reached[situation] += 1

    def situations(self) -> tuple[tuple[str, int], ...]:
        """The rare situations of the run, with how often each was reached."""
        return tuple(sorted(self.reached.items()))
