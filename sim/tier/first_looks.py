"""First moments of a new leader of a partition that brokers tier, in which its node does not know
its log yet.

silent      the broker has no answer for a while (KIP-207), or does not say that it leads
late        its leader-epoch-checkpoint shows the new epoch some time later
unreadable  a file of its replica, or of its log directory, is damaged, and comes back
slow        it answers some questions seconds later than others, so that looks at all partitions and
            looks at those that are asked for overtake each other; the claim comes late to the log

Consumers read all the time, which asks for looks at that partition alone. Followers whose log ends
amid a segment that the tier has are elected, unclean.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.log_names import (
    LEADER_EPOCH_CHECKPOINT_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
)
from rlm.leadership.leadership import BrokerWord, NoAnswer, NotLeading
from rlmm.metadata_log import Proposal
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import decode
from sim.tier.partition import Partition

if TYPE_CHECKING:
    from sim.tier.machine import Machine, Process
    from sim.tier.replica import Replica
    from sim.tier.world import World

SEEDS_OF_FOUR = 3
KINDS = ("silent", "late", "unreadable", "slow")
LASTS_MS = (500, 4_000, 10_000)
PERIODS_MS = (3_000, 8_000)
READS_MS = (0, 60, 300, 700, 1_200, 1_800, 2_500, 3_500, 5_000, 7_000, 9_000)
"""The times behind an election at which consumers read."""
NEWEST = 8
"""Offsets that they read, the last ones in the tier alone, which a cut concerns."""
LOOK_MS, LOOKS_MAX = 700, 60
"""A follower that lags waits for the copy of what it has a part of, for so many looks."""
SLOW_MS_MAX, LATE_MS_MAX = 3_000, 6_000
"""The longest time of an answer, and of a claim."""


class FirstLooks:
    """The moments of a seed. `is_on` None: in most seeds whose brokers tier."""

    def __init__(self, world: World, *, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"{world.seed} looks")
        drawn = random.randrange(4) < SEEDS_OF_FOUR
        self.is_on = drawn if is_on is None else is_on
        self._kinds = random.sample(KINDS, 1 + random.randrange(len(KINDS)))
        self._period_ms = random.choice(PERIODS_MS)
        self._goes_on = False
        self._silent: dict[tuple[Partition, int], tuple[int, BrokerWord]] = {}
        self._slow_until_ms: dict[int, int] = {}
        self._late: dict[Replica, None] = {}
        self._whole: dict[Path, tuple[bytes, Replica]] = {}
        self._lagging: set[Partition] = set()

    def begin(self) -> None:
        """Let new leaders be so, and elect some."""
        if self.is_on and self._world.delegated.is_on:
            self._goes_on = True
            self._go_on()

    def stop(self) -> None:
        """Let all be known."""
        self._goes_on = False
        self._silent.clear()
        self._slow_until_ms.clear()
        for replica in tuple(self._late):
            self._write_down(replica)
        for path in tuple(self._whole):
            self._mend(path)
        for partition in self._lagging:
            partition.behind.clear()
        self._lagging.clear()

    def _go_on(self) -> None:
        if self._goes_on:
            self._lag(self._random.choice(self._world.delegated.partitions))
            self._world.schedule.after(1 + self._random.randrange(2 * self._period_ms), self._go_on)

    # ---- a new leader

    @contextmanager
    def electing(self, partition: Partition, node_id: int) -> Iterator[None]:
        """Let what is known of the new leader's log come later, perhaps."""
        if not self._goes_on:
            yield
            return
        replica = partition.replicas[node_id]
        checkpoint = (replica.directory / LEADER_EPOCH_CHECKPOINT_FILE).read_bytes()
        yield
        random, schedule = self._random, self._world.schedule
        kinds = [kind for kind in self._kinds if random.randrange(4)]
        if "late" in kinds and replica not in self._late:
            self._late[replica] = None
            replica.overwrite(LEADER_EPOCH_CHECKPOINT_FILE, checkpoint)
            schedule.after(self._lasts_ms(), partial(self._write_down, replica))
        if "unreadable" in kinds:
            self._damage(replica, self._world.machine(node_id))
        if "silent" in kinds:
            until_ms = schedule.now_ms + self._lasts_ms()
            word = random.choice((NoAnswer("OFFSET_NOT_AVAILABLE"), NotLeading()))
            self._silent[partition, partition.epoch] = until_ms, word
        if "slow" in kinds:
            self._slow_until_ms[node_id] = schedule.now_ms + self._lasts_ms()
        self._world.note(f"{partition.tip.topic}: n{node_id} is {' and '.join(kinds)} for a while")
        for delay_ms in READS_MS:
            schedule.after(delay_ms, partial(self._read, partition, node_id))

    def _lasts_ms(self) -> int:
        longest_ms = self._random.choice(LASTS_MS)
        return self._random.randint(longest_ms // 2, longest_ms)

    def _write_down(self, replica: Replica) -> None:
        if self._late.pop(replica, replica) is None and not replica.is_removed:
            replica.write_epochs()

    def _damage(self, replica: Replica, machine: Machine) -> None:
        random = self._random
        directory = random.choice((replica.directory, replica.directory, machine.log_dir))
        name = META_PROPERTIES_FILE
        if directory is not machine.log_dir:
            name = random.choice((LEADER_EPOCH_CHECKPOINT_FILE, PARTITION_METADATA_FILE))
        path = directory / name
        if path in self._whole:
            return
        whole = path.read_bytes()
        if name == LEADER_EPOCH_CHECKPOINT_FILE:  # which the broker writes again by itself
            replica.overwrite(name, whole[:-3])
            self._late.setdefault(replica, None)
            self._world.schedule.after(self._lasts_ms(), partial(self._write_down, replica))
            return
        self._whole[path] = whole, replica
        path.write_bytes(whole[:-3])
        self._world.schedule.after(self._lasts_ms(), partial(self._mend, path))

    def _mend(self, path: Path) -> None:
        found = self._whole.pop(path, None)
        if found is None:
            return
        whole, replica = found
        if path.name == META_PROPERTIES_FILE or not replica.is_removed:  # it may be another topic's
            path.write_bytes(whole)

    def word(self, partition: Partition, node_id: int) -> BrokerWord | None:
        """The word of a broker that does not say yet that it leads; None: it says what is so."""
        until_ms, word = self._silent.get((partition, partition.epoch), (0, None))
        is_silent = partition.leader == node_id and self._world.schedule.now_ms < until_ms
        return word if is_silent else None

    def answer_ms(self, machine: Machine) -> int:
        """The time by which a broker answers later."""
        return self._slow_ms(machine, SLOW_MS_MAX)

    def claim_ms(self, process: Process, proposals: Sequence[Proposal]) -> int:
        """The time by which a claim comes later to the log."""
        record = decode(proposals[0].control_type, proposals[0].value)
        return (
            self._slow_ms(process.machine, LATE_MS_MAX) if isinstance(record, PartitionClaim) else 0
        )

    def _slow_ms(self, machine: Machine, max_ms: int) -> int:
        until_ms = self._slow_until_ms.get(machine.node_id, 0)
        is_slow = self._world.schedule.now_ms < until_ms and self._random.randrange(2)
        return self._random.randrange(max_ms) if is_slow else 0

    def _read(self, partition: Partition, node_id: int) -> None:
        replica = partition.replicas.get(node_id)
        broker = self._world.delegated.brokers.get(node_id)
        leads = broker is not None and replica is not None and partition.leading is replica
        if not self._goes_on or not leads or partition.deleted or not partition.is_tiered:
            return
        assert broker is not None
        assert replica is not None
        newest = replica.bases[0] - 1 - self._random.randrange(NEWEST)
        if replica.log_start < replica.bases[0]:
            offset = max(replica.log_start, newest)
            self._world.loop.spawn(broker.life, broker.consumers.consume(partition, offset))

    # ---- a follower that lags

    def is_held(self, partition: Partition) -> bool:
        """True of a partition whose leader stays until a follower that lags is elected."""
        return partition in self._lagging

    def _lag(self, partition: Partition) -> None:
        """Let the log of a follower end amid a segment of the leader, below which it keeps little;
        elect it, unclean, once the tier has the segment.
        """
        delegated, leader = self._world.delegated, partition.leading
        others = [
            each
            for each in sorted(partition.replicas)
            if each != partition.leader and each in delegated.brokers
        ]
        is_held = partition in self._lagging or delegated.rough.is_held(partition)
        if not partition.is_tiered or partition.leader not in delegated.brokers or is_held:
            return
        if leader is None or not others:
            return
        lagging, begins = self._random.choice(others), leader.bases[-1]
        for _ in range(2):  # it keeps one of these sealed segments
            partition.append(self._world.now_ms())
            self._replicate(partition, [*(each for each in others if each != lagging), lagging])
            partition.replicas[lagging].roll()
        if partition.replicas[lagging].end != leader.end:
            return
        self._lagging.add(partition)
        partition.behind.add(lagging)
        partition.drop_from_in_sync(lagging)
        for _ in range(1 + self._random.randrange(2)):
            partition.append(self._world.now_ms())
        leader.roll()
        self._replicate(partition, others)
        self._look(partition, lagging, (partition.epoch, begins), LOOKS_MAX)

    def _replicate(self, partition: Partition, node_ids: Sequence[int]) -> None:
        for each in node_ids:
            self._world.delegated.hear(partition, each)
            self._world.delegated.replicate(partition, each)

    def _look(self, partition: Partition, lagging: int, of: tuple[int, int], looks: int) -> None:
        """Elect the follower once its disk begins amid the leader's segment that ends above its
        log. `of`: the leader epoch, and the base of the segment.
        """
        delegated, (epoch, base) = self._world.delegated, of
        replica = None if partition.deleted else partition.replicas.get(lagging)
        if not self._goes_on or replica is None or partition.epoch != epoch or not looks:
            self._lagging.discard(partition)
            partition.behind.discard(lagging)
            return
        if "slow" in self._kinds:  # so that a look is under way at the election
            self._slow_until_ms[lagging] = self._world.schedule.now_ms + 2 * LOOK_MS
        broker = delegated.brokers.get(lagging)
        if broker is not None and replica.highest_copied >= base:
            broker.retain_locally(partition)
        if broker is not None and replica.bases[0] > base:
            self._lagging.discard(partition)
            delegated.elect(partition, lagging, unclean=True)
        else:
            look = partial(self._look, partition, lagging, of, looks - 1)
            self._world.schedule.after(LOOK_MS, look)
