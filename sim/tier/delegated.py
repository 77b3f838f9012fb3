"""Partitions that brokers tier themselves, with the node beside them as remote storage and metadata
manager: what brokers, admins and the ways between broker and node do to them.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import TopicPolicy
from rlmm.rows import queries
from sim.nodes.loop import Life
from sim.tier.broker_links import BrokerLinks, CallFate
from sim.tier.delegated_audit import DelegatedAuditor
from sim.tier.delegated_modes import DelegatedModes
from sim.tier.partition import Partition
from sim.tier.replica import Replica
from sim.tier.rough import Rough
from sim.tier.tiering import TieringBroker

if TYPE_CHECKING:
    from sim.tier.machine import Machine
    from sim.tier.world import World

SEEDS_PER_DELEGATED_ONE = 5
TOPICS_MAX = 2
LEARN_MS_MAX = 20_000
OFF_MS_MAX = 30_000
DELETE_MS_MAX = 3_000
KINDS = (
    "elect", "unclean", "restart", "move", "recreate", "delete_records", "retention", "late_topic",
    "pauses", "old_brokers", "leaves_off",
)  # fmt: skip


class Delegated:
    """The partitions, and one tiering broker a machine. `is_on` None: in some seeds. `kinds` None:
    the seed draws the deeds. `rough` None: it has awkward moments in some seeds, where it draws the
    deeds, too. `repeats`: brokers run their tasks again and again.
    """

    def __init__(
        self,
        world: World,
        is_on: bool | None,
        kinds: frozenset[str] | None = None,
        topics: int | None = None,
        rough: bool | frozenset[str] | None = None,
    ) -> None:
        self._world = world
        self.random = random = Random(f"delegated {world.seed}")
        drawn = random.randrange(SEEDS_PER_DELEGATED_ONE) == SEEDS_PER_DELEGATED_ONE - 1
        self.is_on = drawn if is_on is None else is_on
        self.audit = DelegatedAuditor(world)
        self.modes = DelegatedModes(world, random)
        self.partitions: list[Partition] = []
        self.deleted: list[Partition] = []
        self.brokers: dict[int, TieringBroker] = {}
        percent = random.choice((25, 50, 80))
        of_seed = frozenset(kind for kind in KINDS if random.randrange(100) < percent)
        self.rough = Rough(world, self, self._is_rough(kinds, rough))
        self.kinds = of_seed if kinds is None else kinds
        if self.rough.is_on:
            self.kinds |= self.rough.kinds
        self.links = BrokerLinks(world, random)
        self.leaves_off = 0.1 if "leaves_off" in self.kinds else 0.0
        self.period_s = random.choice((1.0, 3.0, 10.0))
        self._period_ms = random.choice((300, 1_000, 3_000))
        self.links.permille = random.choice((10, 50, 150))
        self._goes_on = False
        self.repeats = True
        self.keeps: int | None = None
        self._topics = topics or 1 + random.randrange(TOPICS_MAX)
        self._topic_ids = self._lives = self._segments = 0

    def _is_rough(
        self, kinds: frozenset[str] | None, wanted: bool | frozenset[str] | None
    ) -> bool | frozenset[str] | None:
        """The moments that are wanted; None: the seed draws them."""
        return wanted if self.is_on and (kinds is None or wanted) else False

    # ---- topics

    def create_all(self) -> None:
        """Create the topics, before anything runs."""
        for number in range(self._topics if self.is_on else 0):
            self.create(f"d{number}", is_tiered=bool(number) or "late_topic" not in self.kinds)

    def create(self, topic: str, *, is_tiered: bool) -> Partition:
        """Create a topic of one partition."""
        world = self._world
        self._topic_ids += 1
        topic_id = Uuid(b"tiered-%09d" % self._topic_ids)
        replicas = {
            each.node_id: Replica(each.log_dir / f"{topic}-0", topic_id, world.now_ms)
            for each in world.departed.present
        }
        tip = TopicIdPartition(topic, topic_id, 0)
        partition = Partition(tip, replicas, Random(self.random.getrandbits(32)))
        partition.is_tiered = is_tiered
        for replica in replicas.values():
            replica.open_at = partition.open_at
        world.transacting.take(partition)
        self.partitions.append(partition)
        self.elect(partition, self.random.choice(sorted(replicas)), unclean=False)
        return partition

    def new_segment(self) -> Uuid:
        """The id of a broker's next segment."""
        self._segments += 1
        return Uuid(b"tiering-%08d" % self._segments)

    def is_tiered(self, topic: str) -> bool:
        """remote.storage.enable of a topic."""
        return any(each.tip.topic == topic and each.is_tiered for each in self.partitions)

    @property
    def retained(self) -> int | None:
        """Number of offsets that retention keeps; None: all."""
        if self.keeps is not None:
            return self.keeps
        return 60 if self._goes_on and "retention" in self.kinds else None

    # ---- brokers

    def begin(self) -> None:
        """Start the brokers' remote log managers, and act now and then."""
        if not self.is_on:
            return
        self._goes_on = True
        self.start_brokers()
        self._go_on()
        self.rough.begin()

    def start_brokers(self) -> None:
        """Start those that do not run."""
        for machine in self._world.machines:
            self._start(machine)

    def _go_on(self) -> None:
        if self._goes_on:
            for _ in range(1 + self.random.randrange(3)):
                self._act(self.random.choice(self.partitions))
            self._world.schedule.after(1 + self.random.randrange(2 * self._period_ms), self._go_on)

    def switched(self, machine: Machine) -> None:
        """Follow a broker that stopped or started."""
        if not self.is_on:
            return
        if machine.broker_up:
            self._start(machine)
            return
        self._stop(machine)
        for partition in self.partitions:
            partition.drop_from_in_sync(machine.node_id)
            others = [b for b in partition.in_sync if self._world.machine(b).broker_up]
            if partition.leader == machine.node_id and others:
                self.elect(partition, self.random.choice(others), unclean=False)

    def _start(self, machine: Machine) -> None:
        if machine.node_id in self.brokers or machine.is_gone:
            return
        self._lives += 1
        life = Life(f"broker{machine.node_id}.{self._lives}")
        is_old = "old_brokers" in self.kinds and bool(machine.node_id % 2)
        session = Uuid(b"session-%08d" % self._lives)
        broker = TieringBroker(self._world, machine, life, session, is_old=is_old)
        self.brokers[machine.node_id] = broker
        for partition in self.partitions:
            if machine.node_id in partition.replicas:
                self.hear(partition, machine.node_id)

    def _stop(self, machine: Machine) -> None:
        broker = self.brokers.pop(machine.node_id, None)
        if broker is not None:
            broker.life.alive = False
            self._world.loop.kill(broker.life)
            self.rough.stops(broker)

    def end(self) -> None:
        """End all brokers."""
        self.rough.stop()
        for machine in self._world.machines:
            self._stop(machine)

    def elect(self, partition: Partition, broker: int, *, unclean: bool) -> None:
        """Make a broker leader; the others hear of it later."""
        self._world.note(
            f"{partition.tip.topic}: n{broker} leads from {partition.replicas[broker].end} on in "
            f"epoch {partition.epoch + 1}" + (", elected unclean" if unclean else "")
        )
        with self._world.first_looks.electing(partition, broker):
            partition.elect(broker, unclean=unclean)
        self._world.scenes.audit.elected(partition)
        self.hear(partition, broker)
        for other in partition.replicas:
            if other != broker:
                delay_ms = self.random.choice((0, 10, LEARN_MS_MAX))
                self._world.schedule.after(delay_ms, partial(self.hear, partition, other))
        self.rough.elected(partition)

    def hear(self, partition: Partition, node_id: int) -> None:
        """Tell a broker of the present leadership."""
        if partition.deleted or node_id not in partition.replicas:
            return
        if (partition, node_id) in self._world.scenes.brokers.unheard:
            return
        partition.hear(node_id)
        broker = self.brokers.get(node_id)
        if broker is not None and partition.is_tiered:
            broker.hear(partition)

    # ---- as the seed has it

    def fate(self, machine: Machine, name: str) -> CallFate:
        """Fate of a broker's call to its node."""
        return self.links.fate(machine, name, is_calm=not self._goes_on)

    def _act(self, partition: Partition) -> None:
        random = self.random
        leader = partition.leading
        up = leader is not None and partition.leader in self.brokers
        draw = random.randrange(100)
        if draw < 40:
            if up:
                self._append(partition)
        elif draw < 52:
            if up and leader is not None and leader.roll():
                self._world.note(f"{partition.tip.topic}: the leader rolls at {leader.end}")
        elif draw < 68:
            self.replicate(partition, random.choice(sorted(partition.replicas)))
        elif draw < 72:
            self._elect(partition)
        elif draw < 82:
            self._retain_locally(partition, random.choice(sorted(partition.replicas)))
        elif draw < 92:
            self._consume(partition)
        elif draw < 94:
            if up and "delete_records" in self.kinds:
                self._delete_records(partition)
        else:
            self._act_seldom(partition, draw)

    def _act_seldom(self, partition: Partition, draw: int) -> None:
        random = self.random
        if draw < 95 and "restart" in self.kinds:
            self.restart(random.choice(self._world.machines))
        elif draw == 95 and "move" in self.kinds:
            self._move(partition)
        elif draw == 96 and "recreate" in self.kinds and not random.randrange(3):
            self.delete_topic(partition, delay_ms=random.choice((0, DELETE_MS_MAX)))
            self.create(partition.tip.topic, is_tiered=True)
        elif draw == 97:
            self.modes.let_tier(partition)
        elif draw == 98 and "pauses" in self.kinds:
            paused = [not random.randrange(3) for _ in range(2)]
            policy = TopicPolicy(copy_paused=paused[0], delete_paused=paused[1])
            self.modes.ask_admin(
                partial(self._world.admins.set_policy, topic=partition.tip.topic, policy=policy)
            )
        elif draw == 99:
            partition.drop_from_in_sync(random.choice(sorted(partition.replicas)))

    def _append(self, partition: Partition) -> None:
        self._world.events += 1
        if self.random.randrange(8):
            partition.append(self._world.now_ms())
        else:
            partition.append_aborted(self._world.now_ms())

    def replicate(self, partition: Partition, node_id: int) -> None:
        """Let a follower fetch, or build its log on the tier."""
        broker = self.brokers.get(node_id)
        if broker is None or partition.leader not in self.brokers:
            return
        if self.rough.is_apart(partition, node_id):
            return
        if not partition.replicate(node_id):
            broker.rebuild(partition)

    def _elect(self, partition: Partition) -> None:
        of_others = (self.rough, self._world.first_looks, self._world.scenes)
        if any(each.is_held(partition) for each in of_others):
            return
        alive = [b for b in sorted(partition.replicas) if b in self.brokers]
        clean = [b for b in partition.in_sync if b in alive]
        if "unclean" in self.kinds and alive and not self.random.randrange(3):
            broker = self.random.choice(alive)
            self.elect(partition, broker, unclean=broker not in partition.in_sync)
        elif "elect" in self.kinds and clean:
            self.elect(partition, self.random.choice(clean), unclean=False)

    def _retain_locally(self, partition: Partition, node_id: int) -> None:
        broker, replica = self.brokers.get(node_id), partition.replicas[node_id]
        if partition.is_tiered and broker is not None:
            broker.retain_locally(partition)
        elif not partition.is_tiered and len(replica.bases) > 2:
            # Of a topic that the node copies, too, only what is in the tier.
            start = replica.bases[1]
            below = [each for each in replica.batches if each.base < start]
            if all(self.audit.has(partition, each) for each in below):
                replica.trim(start)

    def _consume(self, partition: Partition) -> None:
        broker, replica = self.brokers.get(partition.leader), partition.leading
        if broker is None or replica is None or not partition.is_tiered:
            return
        if replica.log_start < replica.bases[0]:
            offset = self.random.randrange(replica.log_start, replica.bases[0])
            self._world.loop.spawn(broker.life, broker.consumers.consume(partition, offset))

    def _delete_records(self, partition: Partition) -> None:
        leader = partition.leading
        if not partition.is_tiered or leader is None or leader.high_watermark <= leader.log_start:
            return
        start = self.random.randint(leader.log_start + 1, leader.high_watermark)
        self._world.note(f"{partition.tip.topic}: records below {start} are deleted")
        self.audit.takes(partition, leader, start)
        partition.delete_records(partition.leader, start)

    def restart(self, machine: Machine, off_ms_max: int = OFF_MS_MAX) -> None:
        """Stop a broker, and start it again."""
        if machine.broker_up:
            self._world.brokers.switch(machine)
            off_ms = self.random.randrange(off_ms_max)
            self._world.schedule.after(off_ms, partial(self._switch_on, machine))

    def _switch_on(self, machine: Machine) -> None:
        if not machine.broker_up:
            self._world.brokers.switch(machine)

    def _move(self, partition: Partition) -> None:
        others = [b for b in sorted(partition.replicas) if b != partition.leader]
        if not others or not partition.is_tiered:
            return
        node_id = self.random.choice(others)
        self.move_away(partition, node_id)
        back_ms = self.random.randrange(LEARN_MS_MAX)
        self._world.schedule.after(back_ms, partial(self.move_back, partition, node_id))

    def move_away(self, partition: Partition, node_id: int) -> None:
        """Reassign: a follower's replica goes away."""
        self._world.note(f"{partition.tip.topic}: the replica on n{node_id} moves away")
        partition.drop_from_in_sync(node_id)
        partition.departed[node_id] = partition.replicas.pop(node_id)
        partition.departed[node_id].remove()
        if node_id in self.brokers:
            self.brokers[node_id].stop(partition)

    def move_back(self, partition: Partition, node_id: int) -> None:
        """An empty replica comes to a broker."""
        if partition.deleted or node_id in partition.replicas:
            return
        directory = self._world.machine(node_id).log_dir / f"{partition.tip.topic}-0"
        replica = Replica(directory, partition.tip.topic_id, self._world.now_ms)
        replica.open_at = partition.open_at
        partition.replicas[node_id] = replica
        self._world.transacting.take(partition)
        self.hear(partition, node_id)

    def delete_topic(self, partition: Partition, *, delay_ms: int) -> None:
        """Delete a topic as Kafka does: directories first, after a while what the tier has."""
        self._world.note(f"{partition.tip.topic}: the topic {partition.tip.topic_id} is deleted")
        for replica in partition.replicas.values():
            replica.remove()
        partition.deleted = True
        self.partitions.remove(partition)
        self.deleted.append(partition)
        if partition.is_tiered:
            self._world.schedule.after(delay_ms, partial(self._delete_tiered, partition))

    def _delete_tiered(self, partition: Partition) -> None:
        for node_id in sorted(partition.replicas):
            if node_id in self.brokers:
                self.brokers[node_id].delete_topic(partition)

    # ---- healing

    def stop(self) -> None:
        """Stop the deeds; seal what is left. Brokers go on."""
        if not self.is_on:
            return
        self._goes_on, self.repeats = False, True
        self.rough.stop()
        self.start_brokers()
        for partition in self.partitions:
            for machine in self._world.departed.present:
                self.move_back(partition, machine.node_id)
            partition.append(self._world.now_ms())
            leader = partition.leading
            assert leader is not None
            leader.roll()

    def heal(self) -> None:
        """Let followers follow; lift pauses; decide whose each topic is; end deletions that no
        broker ends.
        """
        for partition in self.partitions:
            for node_id in sorted(partition.replicas):
                self.hear(partition, node_id)
                self.replicate(partition, node_id)
            self.modes.ask_admin(
                partial(
                    self._world.admins.set_policy, topic=partition.tip.topic, policy=TopicPolicy()
                )
            )
            self.modes.heal(partition)
            self.rough.heal(partition)
        for partition in self.deleted:
            others = self._world.departed.is_left_to_others(partition.tip)
            if partition.tip not in self.audit.deleted_by_broker and not others:
                self.modes.ask_admin(partial(self._world.admins.delete, tip=partition.tip))

    def left_to_do(self) -> Iterator[str]:
        """Records that are not in the tier, and deleted topics that are."""
        rows = self._world.auditor.reference.rows
        for partition in self.partitions:
            for batch in self.audit.missing(partition):
                self._world.auditor.check(
                    False, "nothing_lost", f"{batch.base} of {partition.tip} is nowhere"
                )
            for batch in self.audit.uncopied(partition):
                yield f"{batch.base} to {batch.last} of {partition.tip} is not copied"
            yield from self.rough.left_to_do(partition)
        for partition in self.deleted:
            state = queries.partition_state(rows, partition.tip)
            left = state is not None and (
                partition.tip not in self.audit.deleted_by_broker
                or next(queries.list_segments(rows, partition.tip), None) is not None
            )
            if left:
                yield f"{partition.tip} was deleted and is still there"
