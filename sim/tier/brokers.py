"""The Kafka cluster: producing, rolling, clean and unclean elections, replication, truncation,
local retention, DeleteRecords, topics deleted and made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kafka_formats import offset_checkpoint
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.offset_checkpoint import HIGH_WATERMARK_FILE, LOG_START_FILE
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.scanner import TopicPartition
from rlm.leadership.leadership import (
    BrokerWord,
    Leads,
    LocalLogStart,
    NoAnswer,
    NotLeading,
    TopicConfig,
)
from rlm.leadership.unseen_disk import EpochAt
from rlmm.partition_state import UNLIMITED
from sim.tier.partition import Partition
from sim.tier.replica import Replica

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.world import World

KINDS = (
    "elect", "unclean", "retention", "greedy_retention", "transactions", "broker_down", "recreate",
    "slow_followers", "storm", "delete_records",
)  # fmt: skip
OLD_MS_MAX = 600_000
LEARN_MS_MAX = 20_000
DEEDS_AMID = 4


MUCH = 1 << 40
"""`retention.bytes` of a topic whose brokers keep a number of offsets."""


class Brokers:
    """The brokers. `kinds` None: the seed draws them. `partitions` are the live ones, `deleted`
    those of deleted topics. `retains`: local retention deletes sealed segments; `is_quiet`: the
    active one, too, which it rolls and deletes at once (UnifiedLog.deleteSegments).
    """

    def __init__(
        self, world: World, kinds: frozenset[str] | None, *, topics: int, replicas: int
    ) -> None:
        self._world = world
        random = world.random
        if kinds is None:
            kinds = frozenset(kind for kind in KINDS if random.randrange(100) < 40)
        self.kinds = kinds
        self.retains = "retention" in kinds
        self.is_quiet = False
        self.on = True
        self._period_ms = random.choice((300, 1_000, 3_000))
        self._replica_count = replicas
        self._topic_ids = 0
        self.partitions: list[Partition] = []
        self.deleted: list[Partition] = []
        for number in range(topics):
            self.create(f"t{number}")

    def create(self, topic: str) -> Partition:
        """Create a topic of one partition."""
        world = self._world
        self._topic_ids += 1
        topic_id = Uuid(b"topic-%010d" % self._topic_ids)
        tip = TopicIdPartition(topic, topic_id, 0)
        hosts = world.departed.present[: self._replica_count]
        replicas = {
            each.node_id: Replica(each.log_dir / f"{topic}-0", topic_id, world.now_ms)
            for each in hosts
        }
        partition = Partition(tip, replicas, Random(world.random.getrandbits(32)))
        for replica in replicas.values():
            replica.open_at = partition.open_at if world.holds else None
        world.transacting.take(partition)
        self.partitions.append(partition)
        self.elect(partition, world.random.choice(sorted(replicas)), unclean=False)
        return partition

    def partition(self, tip: TopicIdPartition) -> Partition:
        """The partition with this topic id, also a deleted one."""
        return next(each for each in self._all() if each.tip == tip)

    def with_id(self, topic_id: Uuid) -> Partition:
        """The partition with this topic id alone, also a deleted one."""
        return next(each for each in self._all() if each.tip.topic_id == topic_id)

    def _all(self) -> Iterator[Partition]:
        yield from (*self.partitions, *self.deleted)
        yield from (*self._world.delegated.partitions, *self._world.delegated.deleted)

    def named(self, name: TopicPartition) -> Partition | None:
        """The living partition of this name, as brokers are asked."""
        living = (*self.partitions, *self._world.delegated.partitions)
        found = (p for p in living if (p.tip.topic, p.tip.partition) == name)
        return next(found, None)

    def word(self, machine: Machine, name: TopicPartition) -> BrokerWord:
        partition = self.named(name)
        if not machine.broker_up or partition is None:
            return NoAnswer("the broker is down")
        not_yet = self._world.first_looks.word(partition, machine.node_id)
        return partition.word(machine.node_id) if not_yet is None else not_yet

    def local_log_start(
        self, machine: Machine, name: TopicPartition
    ) -> LocalLogStart | NotLeading | NoAnswer:
        """The answer of a machine's broker to ListOffsets(earliest local)."""
        replica = self._led(machine, name)
        if not isinstance(replica, Replica):
            return replica
        return LocalLogStart(max(replica.bases[0], replica.log_start), replica.epoch)

    def log_start(self, machine: Machine, name: TopicPartition) -> EpochAt | NotLeading | NoAnswer:
        """The answer of a machine's broker to ListOffsets(earliest)."""
        replica = self._led(machine, name)
        if not isinstance(replica, Replica):
            return replica
        partition = self.named(name)
        assert partition is not None, "it is led"
        audit = self._world.delegated.audit
        audit.tells_log_start(machine.node_id, partition.tip, replica.log_start)
        return EpochAt(replica.epochs[0].epoch, replica.log_start)

    def highest_tiered(self, machine: Machine, name: TopicPartition) -> int | NotLeading | NoAnswer:
        """The answer of a machine's broker to ListOffsets(latest tiered)."""
        replica = self._led(machine, name)
        return replica.highest_copied if isinstance(replica, Replica) else replica

    def knows_later_epoch(
        self, machine: Machine, name: TopicPartition, leader_epoch: int
    ) -> bool | NoAnswer:
        """The answer of a machine's broker, if it has a replica."""
        partition = self.named(name)
        if not machine.broker_up or partition is None:
            return NoAnswer("the broker is down")
        replica = partition.replicas.get(machine.node_id)
        return replica is not None and replica.epoch > leader_epoch

    def _led(self, machine: Machine, name: TopicPartition) -> Replica | NotLeading | NoAnswer:
        word, partition = self.word(machine, name), self.named(name)
        if not isinstance(word, Leads):
            return word
        return NoAnswer("gone") if partition is None else partition.replicas[machine.node_id]

    def topic_config(self, machine: Machine, topic: str) -> TopicConfig | NoAnswer:
        """The config of a topic."""
        if not machine.broker_up:
            return NoAnswer("the broker is down")
        if self.named((topic, 0)) is None:
            return NoAnswer("no such topic")
        limit, delegated = 1 if self.retains else UNLIMITED, self._world.delegated
        size = MUCH if delegated.is_tiered(topic) and delegated.retained is not None else limit
        return TopicConfig("delete", limit, size, delegated.is_tiered(topic))

    # ---- deeds

    def elect(self, partition: Partition, broker: int, *, unclean: bool) -> None:
        self._world.note(
            f"{partition.tip.topic}: n{broker} leads from {partition.replicas[broker].end} on in "
            f"epoch {partition.epoch + 1}" + (", elected unclean" if unclean else "")
        )
        partition.elect(broker, unclean=unclean)
        for other in partition.replicas:
            if other != broker:
                delay_ms = self._world.random.choice((0, 10, LEARN_MS_MAX))
                self._world.schedule.after(delay_ms, partial(self._hear, partition, other))

    def _hear(self, partition: Partition, broker: int) -> None:
        if partition not in self.partitions:
            return
        if self._world.machine(broker).broker_up:
            partition.hear(broker)
        else:
            self._world.schedule.after(LEARN_MS_MAX, partial(self._hear, partition, broker))

    def delete_topic(self, partition: Partition) -> None:
        """Delete a topic as Kafka does: its directories go, and with them what was not copied."""
        self._world.note(f"{partition.tip.topic}: the topic {partition.tip.topic_id} is deleted")
        for replica in partition.replicas.values():
            replica.remove()
        partition.deleted = True
        self.partitions.remove(partition)
        self.deleted.append(partition)

    # ---- as the seed has it

    def begin(self) -> None:
        if self.on:
            looks = self._world.holds or "delete_records" in self.kinds
            if looks and not self._world.random.randrange(20):
                self.look_after(self._world.random.choice(self._world.machines))
            for _ in range(1 + self._world.random.randrange(3)):
                self._act()
            delay_ms = 1 + self._world.random.randrange(2 * self._period_ms)
            self._world.schedule.after(delay_ms, self.begin)

    def act_amid(self) -> None:
        """Let something happen while a thread of a node is at work."""
        if self.on:
            for _ in range(DEEDS_AMID):
                self._act()

    def _act(self) -> None:
        world, random = self._world, self._world.random
        partition = random.choice(self.partitions)
        draw = random.randrange(100)
        if draw < 45:
            self._append(partition)
        elif draw < 55 and (leader := self._leading(partition)) is not None:
            if leader.roll():
                world.note(f"{partition.tip.topic}: the leader rolls at {leader.end}")
        elif draw < (70 if "storm" in self.kinds else 80):
            self._replicate(partition, random.choice(sorted(partition.replicas)))
        elif draw < 84:
            self._elect(partition)
        elif draw < 88 and "retention" in self.kinds:
            self._retain(partition)
        elif draw < 92 and "transactions" in self.kinds:
            if partition.open_from is None:
                partition.begin_transaction()
            else:
                partition.end_transaction()
        elif draw < 94 and "broker_down" in self.kinds:
            self.switch(random.choice(world.machines))
        elif draw < 95 and "recreate" in self.kinds and not random.randrange(4):
            self.delete_topic(partition)
            self.create(partition.tip.topic)
        elif draw < 97 and "slow_followers" in self.kinds:
            partition.drop_from_in_sync(random.choice(sorted(partition.replicas)))
        elif draw < 98 and "delete_records" in self.kinds:
            self._delete_records(partition)

    def _leading(self, partition: Partition) -> Replica | None:
        up = partition.leader in partition.replicas and self._world.machine(partition.leader)
        return partition.leading if up and up.broker_up else None

    def _append(self, partition: Partition) -> None:
        if self._leading(partition) is not None:
            self._world.events += 1
            age_ms = self._world.random.choice((0, 0, OLD_MS_MAX))
            partition.append(self._world.now_ms() - self._world.random.randrange(age_ms + 1))

    def _replicate(self, partition: Partition, broker: int) -> None:
        if self._leading(partition) is not None and self._world.machine(broker).broker_up:
            partition.replicate(broker)

    def _elect(self, partition: Partition) -> None:
        alive = [b for b in sorted(partition.replicas) if self._world.machine(b).broker_up]
        clean = [b for b in partition.in_sync if b in alive]
        random = self._world.random
        if "unclean" in self.kinds and alive and not random.randrange(3):
            broker = random.choice(alive)
            self.elect(partition, broker, unclean=broker not in partition.in_sync)
        elif "elect" in self.kinds and clean:
            self.elect(partition, random.choice(clean), unclean=False)

    def _retain(self, partition: Partition) -> None:
        """Remove sealed, committed segments from the head of one replica."""
        random = self._world.random
        broker = random.choice(sorted(partition.replicas))
        replica = partition.replicas[broker]
        if self.is_quiet and replica.high_watermark == replica.end and random.randrange(2):
            self._world.hold_audit.taken(self._world.machine(broker), partition)
            replica.roll()
        bases = [base for base in replica.bases[1:] if base <= replica.high_watermark]
        if not bases:
            return
        takes_all = self.is_quiet and bases[-1] == replica.end
        start = bases[-1] if takes_all or "greedy_retention" in self.kinds else bases[0]
        self._world.note(f"{partition.tip.topic}: n{broker} deletes locally what is below {start}")
        replica.trim(start)

    def _delete_records(self, partition: Partition) -> None:
        """Delete some or all committed records; followers learn of it when they fetch."""
        leader, random = self._leading(partition), self._world.random
        if leader is None or leader.high_watermark <= leader.log_start:
            return
        start = random.randint(leader.log_start + 1, leader.high_watermark)
        self._world.note(f"{partition.tip.topic}: records below {start} are deleted")
        partition.delete_records(partition.leader, start)

    def look_after(self, machine: Machine) -> None:
        """Remove segments below the log starts, and write the log-start checkpoint (log starts
        that are no segment's base) and the high watermarks.
        """
        kept: dict[tuple[str, int], int] = {}
        committed: dict[tuple[str, int], int] = {}
        for partition in self.partitions:
            replica = partition.replicas.get(machine.node_id)
            if replica is not None:
                replica.tidy()
                name = (partition.tip.topic, partition.tip.partition)
                committed[name] = replica.high_watermark
                if replica.log_start > replica.bases[0]:
                    kept[name] = replica.log_start
        _write(machine.log_dir / LOG_START_FILE, kept)
        if self._world.holds:
            _write(machine.log_dir / HIGH_WATERMARK_FILE, committed)

    def written(self, machine: Machine, partition: Partition) -> int:
        """The high watermark in the broker's checkpoint, or an earlier topic's of that name."""
        path = machine.log_dir / HIGH_WATERMARK_FILE
        if not path.exists():
            return 0
        found = offset_checkpoint.parse(path.read_bytes(), source="")
        return found.get((partition.tip.topic, partition.tip.partition), 0)

    def switch(self, machine: Machine) -> None:
        """Stop a broker, or start it."""
        if machine.is_gone:
            return
        machine.broker_up = not machine.broker_up
        self._world.note(f"{machine.name}: the broker {'starts' if machine.broker_up else 'stops'}")
        self._world.delegated.switched(machine)
        if machine.broker_up:
            return
        for partition in self.partitions:
            partition.drop_from_in_sync(machine.node_id)

    # ---- healing

    def heal(self) -> None:
        """Start every broker, roll each leader's active segment, and let all present replicas
        replicate from the leader.
        """
        self.on, world = False, self._world
        for machine in self._world.departed.present:
            machine.broker_up = True
            self.look_after(machine)
        for partition in self.partitions:
            partition.end_transaction()
            self._append(partition)
            leader = partition.leading
            assert leader is not None
            leader.roll()
            present = [b for b in sorted(partition.replicas) if not world.machine(b).is_gone]
            for broker in partition.replicas.keys() - set(present):  # some deed may have put it in
                partition.drop_from_in_sync(broker)
            for broker in present:
                partition.hear(broker)
                partition.replicate(broker)
            for broker in present:  # who fetched first hears of the rest
                partition.replicate(broker)
        for machine in self._world.machines:  # a follower may have heard of a log start only now
            self.look_after(machine)


def _write(path: Path, offsets: dict[tuple[str, int], int]) -> None:
    aside = path.with_suffix(".tmp")
    aside.write_bytes(offset_checkpoint.encode(offsets))
    aside.replace(path)
