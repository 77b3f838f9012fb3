"""A Kafka partition with three replicas, in miniature: what its brokers' logs and checkpoints say.

Content is told apart by the epoch it was written in: two replicas with the same epoch at an offset
have the same record there. Elections may be unclean, local retention cuts heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlmm.lineage import filtered
from tests.rlmm.state_world import epochs


@dataclass
class Replica:
    """`log` holds the epoch of every offset from 0 on; below `local_start` it is deleted."""

    node_id: int
    log: list[int] = field(default_factory=list)
    local_start: int = 0
    leads_since: tuple[int, int] | None = None

    def checkpoint(self) -> Epochs:
        found: list[tuple[int, int]] = []
        for offset in range(self.local_start, len(self.log)):
            if not found or found[-1][0] != self.log[offset]:
                found.append((self.log[offset], offset))
        if self.leads_since is not None and (not found or found[-1][0] != self.leads_since[0]):
            found.append(self.leads_since)
        return filtered(epochs(*found))

    def cut(self, offsets: int) -> None:
        """The tail is lost."""
        self.log = self.log[: max(0, len(self.log) - offsets)]
        self.local_start = min(self.local_start, len(self.log))


class SimulatedPartition:
    """`unclean`: how often any replica may lead, and not the one with the longest log."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.unclean = random.choice((0.1, 0.4, 0.8))
        self.epoch = -1
        self.replicas = [Replica(node_id) for node_id in (1, 2, 3)]
        self.leader = self.replicas[0]
        self.elect()
        for _ in range(random.choice((0, 10, 20))):  # a topic may be older than its tier
            random.choice((self.append, self.append, self.replicate, self.retain, self.elect))()

    def elect(self) -> None:
        """The longest log leads, or any; or the leader again, without a tail it had not flushed."""
        longest = max(self.replicas, key=lambda each: len(each.log))
        self.leader.leads_since = None
        if self.random.random() < self.unclean / 2:
            self.leader.cut(self.random.randint(1, 20))
        elif self.random.random() < self.unclean:
            self.leader = self.random.choice(self.replicas)
        else:
            self.leader = longest
        self.epoch += self.random.randint(1, 2)
        self.leader.leads_since = (self.epoch, len(self.leader.log))

    def come_back(self, end_offset: int) -> None:
        """The leader leads again, without what it had from `end_offset` on."""
        self.leader.cut(len(self.leader.log) - end_offset)
        self.epoch += 1
        self.leader.leads_since = (self.epoch, len(self.leader.log))

    def append(self) -> None:
        self.leader.log += [self.epoch] * self.random.randint(1, 12)

    def replicate(self) -> None:
        """A follower cuts what diverged, then fetches from where it is to the leader's end."""
        follower = self.random.choice(self.replicas)
        if follower is self.leader:
            return
        same = 0
        for mine, theirs in zip(follower.log, self.leader.log, strict=False):
            if mine != theirs:
                break
            same += 1
        follower.log = self.leader.log[: self.random.randint(same, len(self.leader.log))]
        if len(follower.log) < self.leader.local_start:
            follower.log = self.leader.log[: self.leader.local_start]
            follower.local_start = self.leader.local_start
        follower.local_start = min(follower.local_start, len(follower.log))

    def retain(self) -> None:
        """Local retention, which knows nothing of the tier."""
        replica = self.random.choice(self.replicas)
        replica.local_start = self.random.randint(replica.local_start, len(replica.log))
