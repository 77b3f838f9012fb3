"""A partition as its controller sees it, and everything that its leaders wrote."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kafka_formats.record_batch import ControlType, Record, control_key, encode_batch
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer, NotLeading
from rlmm.segment import OFFSET_MAX
from sim.tier.decided import ABORT, last_stable
from sim.tier.replica import ABORTED_PRODUCER, Batch, Replica

RECORDS_MAX = 4
MARKER_VALUE = bytes(6)
NO_LEADER = -1


class Partition:
    """A partition. `truth` is the log of each epoch's leader: what it had at its election and wrote
    since. `deletions` are DeleteRecords, as (epoch, offset), exclusive. `is_tiered`: its brokers
    tier it themselves (remote.storage.enable). Brokers that are `behind` fetch nothing for now.
    `has_transactions`: transactions are those of batches, and no others are begun.
    """

    def __init__(self, tip: TopicIdPartition, replicas: dict[int, Replica], random: Random) -> None:
        self.tip = tip
        self.replicas = replicas
        self.departed: dict[int, Replica] = {}
        self.leader = NO_LEADER
        self.epoch = -1
        self.in_sync = sorted(replicas)
        self._agreed: dict[int, int] = {}
        self.truth: dict[int, list[Batch]] = {}
        self.behind: set[int] = set()
        self.open_from: int | None = None
        self.deletions: list[tuple[int, int]] = []
        self._decided: list[tuple[int, int]] = []
        self.deleted = False
        self.is_tiered = False
        self.has_transactions = False
        self.random = random
        self.roll_percent = random.choice((10, 25, 60))

    @property
    def leading(self) -> Replica | None:
        """The true leader's replica; None without one."""
        return self.replicas.get(self.leader)

    def elect(self, broker: int, *, unclean: bool) -> None:
        """Make a broker leader; the others hear of it later."""
        before = self.truth.get(self.epoch, [])
        self.epoch += 1
        self.leader = broker
        self.behind.discard(broker)
        if unclean:
            self.in_sync = [broker]
        replica = self.replicas[broker]
        replica.epoch, replica.leads = self.epoch, True
        self._agreed = {
            other: common_end(replica, each)
            for other, each in self.replicas.items()
            if other != broker
        }
        replica.begin_epoch(self.epoch)
        self.truth[self.epoch] = list(replica.batches)
        if self.open_from is not None and self.open_from >= end_in_common(before, replica.batches):
            self.open_from = None  # no marker, and no record, of it is in this log
        self._advance(replica)

    def hear(self, broker: int) -> None:
        """Tell a broker of the present epoch."""
        replica = self.replicas[broker]
        replica.epoch = self.epoch
        replica.leads = broker == self.leader

    def append(self, timestamp_ms: int, count: int | None = None) -> int:
        """Write a batch, of `count` records if given, at the true leader; return its last offset,
        or -1.
        """
        replica = self.leading
        if replica is None:
            return -1
        base, count = replica.end, count or 1 + self.random.randrange(RECORDS_MAX)
        records = [
            Record(base + at, timestamp_ms, None, b"%d of epoch %d" % (base + at, self.epoch), ())
            for at in range(count)
        ]
        data = encode_batch(records, base_offset=base, partition_leader_epoch=self.epoch)
        return self._write(replica, Batch(base, base + count - 1, self.epoch, timestamp_ms, data))

    def append_at(self, times_ms: Sequence[int]) -> None:
        """Write a batch of records with these times at the true leader."""
        replica = self.leading
        if replica is None:
            return
        base = replica.end
        records = [
            Record(base + at, each, None, b"%d of epoch %d" % (base + at, self.epoch), ())
            for at, each in enumerate(times_ms)
        ]
        data = encode_batch(records, base_offset=base, partition_leader_epoch=self.epoch)
        self._write(replica, Batch(base, records[-1].offset, self.epoch, max(times_ms), data))

    def append_aborted(self, timestamp_ms: int) -> None:
        """Write a transaction and the marker that aborts it at the true leader, as one batch."""
        replica = self.leading
        if replica is None:
            return
        base = replica.end
        record = Record(base, timestamp_ms, None, b"aborted", ())
        marker = Record(base + 1, timestamp_ms, control_key(ControlType.ABORT), MARKER_VALUE, ())
        data = b"".join(
            encode_batch(
                [each], base_offset=each.offset, partition_leader_epoch=self.epoch,
                producer_id=ABORTED_PRODUCER, producer_epoch=0, transactional=True,
                base_sequence=-1 if each is marker else base, control=each is marker,
            )
            for each in (record, marker)
        )  # fmt: skip
        batch = Batch(base, base + 1, self.epoch, timestamp_ms, data, True, ABORTED_PRODUCER)
        self._write(replica, batch)

    def append_of(self, producer: int, timestamp_ms: int, count: int) -> None:
        """Write records of a producer's transaction at the true leader."""
        if (replica := self.leading) is None:
            return
        base = replica.end
        records = [
            Record(base + at, timestamp_ms, None, b"%d of producer %d" % (base + at, producer), ())
            for at in range(count)
        ]
        data = encode_batch(
            records, base_offset=base, partition_leader_epoch=self.epoch, producer_id=producer,
            producer_epoch=0, transactional=True, base_sequence=base,
        )  # fmt: skip
        last = base + count - 1
        self._write(replica, Batch(base, last, self.epoch, timestamp_ms, data, False, producer))

    def append_marker(self, producer: int, timestamp_ms: int, outcome: str) -> None:
        """Write a marker, ABORT or COMMIT, at the true leader."""
        if (replica := self.leading) is None:
            return
        base = replica.end
        key = control_key(ControlType.ABORT if outcome == ABORT else ControlType.COMMIT)
        data = encode_batch(
            [Record(base, timestamp_ms, key, MARKER_VALUE, ())],
            base_offset=base, partition_leader_epoch=self.epoch, producer_id=producer,
            producer_epoch=0, transactional=True, base_sequence=-1, control=True,
        )  # fmt: skip
        batch = Batch(base, base, self.epoch, timestamp_ms, data, False, producer, outcome)
        self._write(replica, batch)

    def _write(self, replica: Replica, batch: Batch) -> int:
        replica.append(batch)
        self.truth[self.epoch].append(batch)
        self._advance(replica)
        return batch.last

    def replicate(self, broker: int) -> bool:
        """Let a follower that knows the epoch fetch everything, after truncating what diverged.
        False: what it lacks is in the tier alone.
        """
        leader, follower = self.leading, self.replicas[broker]
        if leader is None or broker == self.leader or follower.epoch != self.epoch:
            return True
        if broker in self.behind:
            return True
        follower.truncate(common_end(leader, follower))
        start = leader.log_start
        if self.is_tiered and max(follower.end, start) < leader.bases[0]:
            return False
        if follower.end < start or follower.bases[0] > follower.end:
            # A fetch at the log start brings the whole batch that has it.
            before = [batch for batch in leader.batches if batch.last < start]
            follower.start_over(before, before[-1].last + 1 if before else 0)
        for batch in leader.batches:
            if batch.base >= follower.end:
                follower.append(batch, lost=batch in leader.lost)
                if self.random.randrange(100) < self.roll_percent:
                    follower.roll()
        if broker not in self.in_sync:
            self.in_sync = sorted([*self.in_sync, broker])
        self._agreed.pop(broker, None)
        self._advance(leader)
        follower.high_watermark = min(leader.high_watermark, follower.end)
        follower.cut(min(leader.log_start, follower.high_watermark))
        return True

    def delete_records(self, broker: int, start: int) -> None:
        """Delete a leader's records below `start`."""
        replica = self.replicas[broker]
        self.deletions.append((replica.epoch, start))
        replica.cut(start)

    def is_deleted(self, batch: Batch, end: int) -> bool:
        """True if some leader's DeleteRecords took all of the batch below `end`."""
        end = min(end, batch.last + 1)
        return any(end <= at and batch in self.truth[epoch] for epoch, at in self.deletions)

    def drop_from_in_sync(self, broker: int) -> None:
        """Drop a slow or dead broker from the in-sync replicas."""
        if broker != self.leader and broker in self.in_sync:
            self.in_sync.remove(broker)
            if (leader := self.leading) is not None:
                self._advance(leader)

    def begin_transaction(self) -> None:
        begins = self.open_from is None and not self.has_transactions
        if begins and (leader := self.leading) is not None:
            self.open_from = leader.end

    def end_transaction(self) -> None:
        if self.open_from is not None and self.leading is not None:
            self._decided.append((self.open_from, self.leading.end))
        self.open_from = None
        if (leader := self.leading) is not None:
            self._advance(leader)

    def open_at(self, offset: int) -> int | None:
        """Start of the transaction open at `offset`; None without one."""
        spans = [*self._decided, (offset if self.open_from is None else self.open_from, offset + 1)]
        return next((start for start, end in spans if start < offset < end), None)

    def word(self, broker: int) -> BrokerWord:
        """The answer of the broker with this id to ListOffsets(latest, read_committed)."""
        replica = self.replicas.get(broker)
        if replica is None or not replica.leads:
            return NotLeading()
        if replica.high_watermark < replica.epochs[-1].start_offset:
            return NoAnswer("OFFSET_NOT_AVAILABLE")  # KIP-207
        return Leads(replica.epoch, replica.last_stable)

    def _advance(self, leader: Replica) -> None:
        """The high watermark: what a follower has of another leader's log counts for nothing, as a
        fetch tells the last epoch (KIP-320, KIP-595).
        """
        ends = [
            min(self.replicas[each].end, self._agreed.get(each, OFFSET_MAX))
            for each in self.in_sync
        ]
        leader.high_watermark = max(leader.high_watermark, min(ends, default=leader.end))
        stable = leader.high_watermark
        if self.has_transactions:
            leader.last_stable = last_stable(leader.batches, stable)
        else:
            leader.last_stable = stable if self.open_from is None else min(stable, self.open_from)


def common_end(one: Replica, other: Replica) -> int:
    """The first offset where two logs differ, or where one ends."""
    return end_in_common(one.batches, other.batches)


def end_in_common(one: Sequence[Batch], other: Sequence[Batch]) -> int:
    """The first offset where two sequences of batches differ, or where one ends."""
    end = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        end = ours.last + 1
    return end
