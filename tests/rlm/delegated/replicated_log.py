"""A partition of three brokers as Kafka replicates it, every record of which is known.

Elections may be unclean, followers truncate by leader epochs (KIP-101, KIP-279), and disks are
lost. A record is equal to another one only if the same leader wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_formats.leader_epoch_checkpoint import (
    Epochs,
    append_entry,
    end_offset_for,
    truncate_from_end,
    truncate_from_start,
)


class Record(NamedTuple):
    """`number` is the order in which leaders wrote; `is_marker`: it ends an aborted transaction."""

    offset: int
    epoch: int
    number: int
    is_marker: bool


@dataclass(slots=True)
class Replica:
    """`log` has what lies in the tier, too; `bases` are those of the segments on its disk, the last
    one active. `epochs` is Kafka's LeaderEpochFileCache.
    """

    log: dict[int, Record] = field(default_factory=dict)
    bases: list[int] = field(default_factory=lambda: [0])
    epochs: Epochs = ()
    log_start: int = 0
    end: int = 0

    @property
    def local_start(self) -> int:
        return max(self.bases[0], self.log_start)

    def lead(self, epoch: int) -> None:
        self.epochs = append_entry(self.epochs, epoch, self.end)

    def append(self, record: Record) -> None:
        self.epochs = append_entry(self.epochs, record.epoch, record.offset)
        self.log[record.offset] = record
        self.end = record.offset + 1

    def roll(self) -> None:
        if self.bases[-1] < self.end:
            self.bases.append(self.end)

    def truncate(self, end: int) -> None:
        self.log = {offset: each for offset, each in self.log.items() if offset < end}
        if end < self.end:
            self.bases = [base for base in self.bases if base < end] or [end]
            self.end = end
        self.epochs = truncate_from_end(self.epochs, self.end)
        self.log_start = min(self.log_start, self.end)

    def start_at(self, log_start: int) -> None:
        """Move the log start forward."""
        if log_start > self.log_start:
            self.log_start = log_start
            self.epochs = truncate_from_start(self.epochs, log_start)
        while len(self.bases) > 1 and self.bases[1] <= self.log_start:
            del self.bases[0]

    def begin(self, leader: Replica, start: int, epochs: Epochs) -> None:
        """Begin behind what the tier has of the leader's log (Kafka's TierStateMachine)."""
        self.log = {offset: each for offset, each in leader.log.items() if offset < start}
        self.bases, self.end, self.log_start = [start], start, leader.log_start
        self.epochs = truncate_from_start(epochs, leader.log_start)

    def fetch(self, leader: Replica) -> bool:
        """Follow the leader; False if what comes next is not on its disk."""
        self.truncate(min(common_end(leader, self), self.end))
        if self.end < leader.local_start:
            return False
        for offset in range(self.end, leader.end):
            self.append(leader.log[offset])
        self.start_at(min(leader.log_start, self.end))
        return True

    def within(self, start: int, end: int) -> list[Record]:
        """The records of [`start`, `end`)."""
        return [self.log[offset] for offset in range(start, end) if offset in self.log]


def common_end(leader: Replica, follower: Replica) -> int:
    """The offset that a follower truncates to."""
    end = follower.end
    if not follower.epochs:
        return end
    asked = follower.epochs[-1].epoch
    while asked >= 0:
        epoch, leaders_end = end_offset_for(leader.epochs, asked, leader.end)
        if epoch == asked or epoch < 0:
            return min(end, leaders_end if epoch >= 0 else leader.log_start)
        asked, own_end = end_offset_for(follower.epochs, epoch, follower.end)
        end = min(end, own_end)
        if asked == epoch:
            return min(end, leaders_end)
    return min(end, leader.log_start)
