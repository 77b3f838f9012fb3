"""DeleteRecords on the brokers, topics whose policy has the tier follow it, and all else that moves
a log start: retention, in one step or two, other leaders and back, a replica that comes to another
log directory, topics made again.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import CopyLimits
from rlm.copy.scanner import TopicPartition
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import LogStart
from rlmm.rows import queries
from rlmm.segment import SegmentState
from sim.tier.partition import Partition
from sim.tier.replica import Batch, Replica

if TYPE_CHECKING:
    from sim.tier.world import World

PERIOD_MS = 2_000
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
LAST_BATCHES = 3
STEP_MS_MAX = 20
AMID_ONE_IN = 6


class Following:
    """Followed DeleteRecords, and what makes following hard. `moved` counts log starts that
    followed.
    """

    def __init__(self, world: World, *, is_on: bool) -> None:
        self._world = world
        self._random = random = Random(f"following {world.seed}")
        self.is_on = is_on
        self._goes_on = False
        self._retains = bool(random.randrange(4))
        self._heals = False
        self._last: dict[TopicIdPartition, tuple[int, int]] = {}
        self.moved = 0

    def limits(self, limits: CopyLimits) -> CopyLimits:
        """Limits of the nodes, which sometimes look at log starts more often than at the disk."""
        if not self.is_on:
            return limits
        return replace(limits, retention_interval_s=self._random.choice((1.0, 4.0, 10.0)))

    def begin(self) -> None:
        """Begin to act now and then."""
        if self.is_on:
            self._goes_on = True
            self._world.brokers.retains |= self._retains
            self._go_on()

    def _go_on(self) -> None:
        if self._goes_on:
            self._act(self._random.choice(self._world.brokers.partitions))
            self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self._go_on)

    def stop(self) -> None:
        """Stop, except for what healing asks for."""
        self._goes_on = False

    def took(self, record: LogStart, policy: TopicPolicy, log: list[Batch], start: int) -> bool:
        """True if a log start that moved from `start` takes only what DeleteRecords took, by the
        policy.
        """
        self.moved += 1
        partition = self._world.brokers.partition(record.partition)
        below = [each for each in log if each.base < record.offset and start <= each.last]
        return (
            policy.follow_delete_records
            and not policy.delete_paused
            and all(partition.is_deleted(each, record.offset) for each in below)
        )

    # ---- as the seed has it

    def _act(self, partition: Partition) -> None:
        random, leader = self._random, self._leading(partition)
        draw = random.randrange(100)
        if draw < 20:
            self._set_policy(partition.tip.topic, follow=bool(random.randrange(2)))
        elif leader is None:
            return
        elif draw < 40:
            self._delete_records(partition, leader)
        elif draw < 55:
            if self._retains:
                self._retain(partition, leader)
        elif draw < 65:
            self._there_and_back(partition, at_once=bool(random.randrange(2)))
        elif draw < 90:
            self._move(partition, leader)
        elif draw < 99:
            self._world.brokers.look_after(self._world.machine(partition.leader))
        elif not random.randrange(4):
            self._world.brokers.delete_topic(partition)
            self._world.brokers.create(partition.tip.topic)

    def amid(self, names: Sequence[TopicPartition]) -> None:
        """Perhaps let something happen right before a node's question for log starts is
        answered.
        """
        if not self._goes_on or not names or self._random.randrange(AMID_ONE_IN):
            return
        partition = self._world.brokers.named(self._random.choice(names))
        leader = None if partition is None else self._leading(partition)
        if partition is None or leader is None:
            return
        draw = self._random.randrange(4)
        if draw < 2:
            self._there_and_back(partition, at_once=True)
        elif draw == 2:
            self._delete_records(partition, leader)
        elif self._retains:
            self._retain(partition, leader)

    def _leading(self, partition: Partition) -> Replica | None:
        """The leader's replica, while its broker runs."""
        leader = partition.leading
        if leader is None or not self._world.machine(partition.leader).broker_up:
            return None
        return leader

    def _set_policy(self, topic: str, *, follow: bool) -> None:
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups:
            self._world.admins.follow(self._random.choice(ups), topic, follow=follow)

    def _delete_records(self, partition: Partition, leader: Replica) -> None:
        """Delete records up to a segment's border, inside a segment, or all committed ones."""
        first, last = leader.log_start + 1, leader.high_watermark
        if first > last:
            return
        borders = [base for base in leader.bases if first <= base <= last]
        start = self._random.choice((self._random.randint(first, last), last, *borders[:1]))
        self._world.note(f"{partition.tip.topic}: records below {start} are deleted")
        partition.delete_records(partition.leader, start)

    def _retain(self, partition: Partition, replica: Replica) -> None:
        """Remove sealed segments at once, or move the log start first and remove them a little
        later.
        """
        bases = [b for b in replica.bases[1:] if replica.log_start < b <= replica.high_watermark]
        if not bases:
            return
        start = self._random.choice((bases[0], bases[-1]))
        self._world.note(f"{partition.tip.topic}: retention takes what is below {start}")
        if self._random.randrange(2):
            replica.trim(start)
        else:
            replica.cut(start)
            self._world.schedule.after(self._random.randrange(STEP_MS_MAX), replica.tidy)

    def _there_and_back(self, partition: Partition, *, at_once: bool) -> None:
        """Let another broker with all records lead for a while, then the first one again."""
        first = partition.leader
        alive = [b for b in sorted(partition.replicas) if self._world.machine(b).broker_up]
        if first not in alive or len(alive) < 2:
            return
        self._hand_over(partition, self._random.choice([b for b in alive if b != first]))
        if at_once:
            self._back(partition, first)
        else:
            back = partial(self._back, partition, first)
            self._world.schedule.after(self._random.choice((50, 3_000)), back)

    def _back(self, partition: Partition, first: int) -> None:
        leader = self._leading(partition)
        if partition.deleted or leader is None or not self._goes_on:
            return
        if self._retains and self._random.randrange(3):
            self._retain(partition, leader)
        else:
            self._delete_records(partition, leader)
        if self._world.machine(first).broker_up and partition.leader != first:
            self._hand_over(partition, first)

    def _hand_over(self, partition: Partition, broker: int) -> None:
        for each in sorted(partition.replicas):
            if each != partition.leader and self._world.machine(each).broker_up:
                partition.hear(each)
                partition.behind.discard(each)
                partition.replicate(each)
        self._world.brokers.elect(partition, broker, unclean=False)

    def _move(self, partition: Partition, leader: Replica) -> None:
        """Move a replica to another log directory, while its log start may move."""
        if leader.lost:
            return
        start = leader.log_start
        if self._retains:
            self._retain(partition, leader)
        self._world.note(
            f"{partition.tip.topic}: n{partition.leader} moves what it has from {start}"
        )
        leader.move(start, lambda: not self._random.randrange(3))

    # ---- healing

    def heal(self) -> None:
        """Delete records on each leader that its node watches under the present claim, which has to
        be followed; again after another claim.
        """
        if not self.is_on:
            return
        if not self._heals:
            self._heals = True
            for topic in sorted({each.tip.topic for each in self._world.brokers.partitions}):
                if self._random.randrange(2):
                    self._set_policy(topic, follow=True)
        for partition in self._world.brokers.partitions:
            token = self._seen_under(partition)
            if token is None or self._last.get(partition.tip, (-1, 0))[0] == token:
                continue
            for _ in range(LAST_BATCHES):
                partition.append(self._world.now_ms())
            leader = partition.leading
            assert leader is not None
            leader.roll()
            for broker in sorted(partition.replicas):
                partition.replicate(broker)
            inside = range(leader.bases[-2] + 1, leader.bases[-1])
            start = self._random.choice([*inside[:1], *inside])
            self._last[partition.tip] = token, start
            self._world.note(f"{partition.tip.topic}: records below {start} are deleted at last")
            partition.delete_records(partition.leader, start)

    def _seen_under(self, partition: Partition) -> int | None:
        """Token of the present claim, once the leader's node has looked at the present directory
        under it.
        """
        process = self._world.machine(partition.leader).up
        state = queries.partition_state(self._world.auditor.reference.rows, partition.tip)
        if process is None or process.follower is None or state is None or state.claim is None:
            return None
        known = process.follower.known.get(partition.tip)
        there = partition.replicas[partition.leader].directory.stat()
        seen = (state.claim.token, (there.st_dev, there.st_ino))
        if known is None or (known.last.token, known.last.directory) != seen:
            return None
        return state.claim.token

    def left_to_do(self) -> Iterator[str]:
        """Deletes not yet followed, and segments that end below a log start."""
        if not self.is_on:
            return
        rows = self._world.auditor.reference.rows
        for partition in self._world.brokers.partitions:
            tip = partition.tip
            policy = queries.topic_policy(rows, tip.topic, tip.topic_id)
            state = queries.partition_state(rows, tip)
            if not policy.follow_delete_records or state is None:
                continue
            _, start = self._last.get(tip, (-1, -1))
            if start < 0:
                yield f"nobody looks whether DeleteRecords moves the log start of {tip}"
            elif state.log_start_offset < start:
                yield f"DeleteRecords below {start} of {tip} is not followed"
            for row in queries.list_segments(rows, tip):
                if row.state is FINISHED and row.end_offset < state.log_start_offset:
                    yield f"{row.segment_id} ends below log start {state.log_start_offset}"
