"""Invariants of partitions that brokers tier themselves, seen from outside.

nothing_lost               a committed record that a broker's disk dropped is in the tier, unless
                           retention or DeleteRecords took it
nothing_wrong              consumers and rebuilt followers get what the leader has, and no more
aborted_is_not_shown       a read_committed consumer hears of every aborted transaction
only_its_broker_deletes    no finished segment is deleted that no broker asked to delete, unless the
                           log start that its leader told passed it
expires_once               no broker counts as kept, by size, what its log start passed before
kept_history_is_not_counted  ... also of what stays below it, since it was tiered before brokers did
counts_once                ... or twice what is on its disk and in the tier
one_of_both_copies         a broker copies in mode delegated, a node in mode sidecar
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import (
    Epochs,
    end_offset_for,
    epoch_for_offset,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_formats.transaction_index import AbortedTransaction
from rlm.delegated.older_history import is_kept
from rlm.format.object_keys import segment_keys
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import LogStart
from rlmm.rows import queries
from rlmm.rows.coverage import covering
from rlmm.rows.reads import read_segment
from rlmm.segment import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, SegmentState
from sim.tier.committed_audit import COMMITTED, FOREVER, OPEN, PLAIN, units
from sim.tier.committed_readers import consumed
from sim.tier.decided import transactions
from sim.tier.readers import batches_of
from sim.tier.told_audit import ToldAuditor

if TYPE_CHECKING:
    from sim.tier.partition import Partition
    from sim.tier.replica import Batch, Replica
    from sim.tier.world import World


class DelegatedAuditor:
    """Checks what brokers hear and do. `deleted_by_broker` are topics whose broker was told that
    all is gone; `consumed_bytes` counts what consumers got.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun: set[Uuid] = set()
        self._asked: dict[Uuid, dict[int | None, set[tuple[int, int]]]] = {}
        self._taken: dict[TopicIdPartition, set[tuple[int, int]]] = {}
        self._told: dict[tuple[int, TopicIdPartition], int] = {}
        self.deleted_by_broker: set[TopicIdPartition] = set()
        self.consumed_bytes = 0
        self.told = ToldAuditor(world)

    def _check(self, holds: bool, name: str, message: str) -> None:
        self._world.auditor.check(holds, name, message)

    # ---- what brokers do

    def adds(self, row: RemoteLogSegmentMetadata) -> None:
        """Note a copy that a broker begins."""
        self._begun.add(row.segment_id.id)

    def asks_to_delete(self, broker: int, rows: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Note segments that a broker deletes under the claim that stands, whoever copied them, and
        their records that its own log does not have.
        """
        for row in rows:
            partition = self._world.brokers.partition(row.segment_id.partition)
            deleting = partition.replicas.get(broker)
            asked = self._asked.setdefault(row.segment_id.id, {})
            asked[self._token(row)] = _lacking(partition, row, deleting or partition.leading)

    def _token(self, row: RemoteLogSegmentMetadata) -> int | None:
        rows = self._world.auditor.reference.rows
        state = queries.partition_state(rows, row.segment_id.partition)
        return None if state is None or state.claim is None else state.claim.token

    def _goes(self, row: RemoteLogSegmentMetadata, claimant: int) -> None:
        """Note records that go with a segment: those that its broker did not have when it asked, if
        its claim still stands, or that the claimant does not have now. No others: a broker that was
        replaced, and its late calls, delete nothing of its successor's log.
        """
        partition = self._world.brokers.partition(row.segment_id.partition)
        taken = self._taken.setdefault(partition.tip, set())
        taken |= self._asked.get(row.segment_id.id, {}).get(self._token(row), set())
        taken |= _lacking(partition, row, partition.replicas.get(claimant))

    def tells_log_start(self, broker: int, tip: TopicIdPartition, start: int) -> None:
        """Note the log start that a leader tells its node."""
        self._told[(broker, tip)] = max(start, self._told.get((broker, tip), 0))

    def finished(self, tip: TopicIdPartition) -> frozenset[Uuid]:
        """The ids of a partition's finished segments."""
        rows = queries.list_segments(self._world.auditor.reference.rows, tip)
        return frozenset(
            row.segment_id.id for row in rows if row.state is SegmentState.COPY_SEGMENT_FINISHED
        )

    def counts_as_kept(self, rows: Iterable[RemoteLogSegmentMetadata], began: int) -> None:
        """Check finished segments that `retention.bytes` counts, in a run of the expiration that
        began at this log start: what lies below it would have as much again expire. Of a deleted
        topic all goes, and its log start is told no more.
        """
        recorded = self._world.auditor.reference.rows
        for told in rows:
            if self._world.brokers.partition(told.segment_id.partition).deleted:
                continue
            state = queries.partition_state(recorded, told.segment_id.partition)
            row = read_segment(recorded, told.segment_id.id)
            if row is None or state is None:
                continue
            self._check(
                told.end_offset >= began or not told.size_bytes,
                "kept_history_is_not_counted" if is_kept(row, state) else "expires_once",
                f"{told.segment_id}, which ends at {told.end_offset}, is counted as kept by a "
                f"leader whose log began at {began}",
            )

    def counts_the_disk(
        self, partition: Partition, replica: Replica, rows: Iterable[RemoteLogSegmentMetadata]
    ) -> None:
        """Check what a leader counts by size, beside its segments above the highest offset that it
        takes for copied.
        """
        local = [base for base in replica.bases if base > replica.highest_copied]
        twice = [row for row in rows if local and row.end_offset >= local[0]]
        self._check(
            partition.deleted or partition.leading is not replica or not twice,
            "counts_once",
            f"{twice} of {partition.tip} count twice: the leader counts its disk from {local[:1]}",
        )

    def takes(self, partition: Partition, replica: Replica, log_start: int) -> None:
        """Note what retention or DeleteRecords take."""
        taken = self._taken.setdefault(partition.tip, set())
        taken |= {(each.epoch, each.base) for each in replica.batches if each.last < log_start}

    def log_start_moves(self, partition: Partition, replica: Replica, start: int) -> None:
        """Check a log start that a new leader takes from the tier."""
        for batch in replica.batches if partition.leading is replica else ():
            self._check(
                not replica.log_start <= batch.last < start or self.is_taken(partition, batch),
                "nothing_lost",
                f"the log start of {partition.tip} moves to {start}, though nothing took "
                f"{batch.base} to {batch.last}",
            )

    def log_start_recorded(self, record: LogStart, below: Iterable[Batch]) -> None:
        """Check a broker's log start that a node records over the batches below it."""
        taken = self._taken.get(record.partition, ())
        left = [each for each in below if (each.epoch, each.base) not in taken]
        self._check(not left, "nothing_lost", f"{record} is recorded, and nothing took {left}")

    def drops(self, partition: Partition, replica: Replica, start: int) -> None:
        """Check local retention."""
        going = [each for each in replica.batches if replica.bases[0] <= each.base < start]
        for batch in self._not_served(partition, going):
            self._check(
                False,
                "nothing_lost",
                f"{batch.base} to {batch.last} of {partition.tip} leaves a broker's disk, and the "
                "tier does not have it",
            )

    # ---- what brokers are told

    def finds_nothing(self, partition: Partition, replica: Replica, offset: int) -> None:
        """Check that an offset is nowhere, as a broker was told: it resets consumers."""
        if partition.leading is not replica or offset < replica.log_start or partition.deleted:
            return
        for batch in replica.batches:
            self._check(
                not batch.base <= offset <= batch.last
                or self.is_taken(partition, batch)
                or partition.is_deleted(batch, offset + 1),
                "nothing_lost",
                f"the leader of {partition.tip} is told that the tier has nothing at {offset}",
            )

    def rebuilds(self, partition: Partition, leader: Replica, epochs: Epochs, start: int) -> None:
        """Check the epochs of a follower that is rebuilt from the tier, and that its leader has
        what it goes on behind. The epochs lack what retention at an earlier leader took, whose log
        start this one does not know.
        """
        if partition.leading is not leader:
            return
        last = epochs[-1].epoch if epochs else leader.epoch
        epoch, until = end_offset_for(leader.epochs, last, leader.end)
        self._check(
            start <= leader.log_start or (epoch == last and start <= until),
            "nothing_wrong",
            f"a follower of {partition.tip} is rebuilt up to {start} in epoch {last}, its leader "
            f"has epoch {epoch} up to {until}: {leader.epochs}",
        )
        for batch in leader.batches:
            first = max(batch.base, leader.log_start)
            self._check(
                not first <= batch.last < start
                or epoch_for_offset(epochs, first) == batch.epoch
                or self.is_taken(partition, batch),
                "nothing_wrong",
                f"a follower of {partition.tip} is rebuilt with the epochs {epochs}, its leader "
                f"has {leader.epochs}",
            )

    def consumed(
        self, partition: Partition, replica: Replica, offset: int, got: Sequence[Batch]
    ) -> None:
        """Check what a consumer of the leader got at an offset, unless the log start passed it."""
        if partition.leading is not replica or partition.deleted or offset < replica.log_start:
            return
        data = b"".join(each.data for each in replica.batches if each.last >= offset)
        wanted = [each for each in batches_of(data) if each.last >= offset]
        self._check(bool(got), "nothing_lost", f"a segment lacks {offset} of {partition.tip}")
        self._check(
            len(got) <= len(wanted),
            "nothing_wrong",
            f"a consumer of {partition.tip} at {offset} got {got[-1:]}, the log ends before",
        )
        self.consumed_bytes += sum(len(each.data) for each in got)
        for mine, theirs in zip(got, wanted, strict=False):
            self._check(
                mine.data == theirs.data,
                "nothing_wrong",
                f"a consumer of {partition.tip} at {offset} got {mine.base} to {mine.last} of "
                f"epoch {mine.epoch}, the leader has epoch {theirs.epoch} there",
            )

    def told_aborted(
        self,
        partition: Partition,
        replica: Replica,
        offset: int,
        got: Sequence[Batch],
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """Check what a read_committed consumer is told of aborted transactions in what it got."""
        is_above = offset >= replica.log_start
        if not got or partition.leading is not replica or partition.deleted or not is_above:
            return
        told = {(each.first_offset, each.last_offset) for each in aborted}
        by_log = {each for each in transactions(replica.batches) if each.is_aborted}
        known = {(each.first, each.marker) for each in by_log}
        invented = [each for each in told - known if offset <= each[1] and each[0] <= got[-1].last]
        self._check(
            not invented,
            "aborted_is_not_shown",
            f"{invented} of {partition.tip} are said to be aborted, and were not by this leader",
        )
        for batch in replica.batches:
            self._check(
                not batch.aborted
                or not offset <= batch.base < batch.last <= got[-1].last
                or (batch.base, batch.last) in told,
                "aborted_is_not_shown",
                f"{batch.base} of {partition.tip} was aborted at {batch.last}, and nobody says so",
            )
        if replica.has_transactions:
            from_offset = [(each.producer_id, each.first_offset) for each in aborted]
            shown = {each.data for each in consumed(got, from_offset, FOREVER)}
            kinds = {each.data: each.kind for each in units(replica.batches)}
            for each in got:
                kind = kinds.get(each.data, PLAIN)
                self._check(
                    kind == OPEN or (each.data in shown) is (kind in (PLAIN, COMMITTED)),
                    "aborted_is_not_shown",
                    f"{each.base} to {each.last} of {partition.tip}, {kind}, is "
                    f"{'shown' if each.data in shown else 'hidden'} by {aborted}",
                )

    # ---- what the metadata log says

    def _is_passed(self, row: RemoteLogSegmentMetadata, state: PartitionState) -> bool:
        """True if the claimant's broker said that its log starts above the segment."""
        if state.claim is None:
            return False
        told = (state.claim.incarnation.node_id, row.segment_id.partition)
        return row.end_offset < self._told.get(told, 0)

    def committed(
        self,
        decoded: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate,
        before: RemoteLogSegmentMetadata | None,
    ) -> None:
        """Check an accepted record of a segment. `before`: its row until then."""
        if not self._world.disaster.is_over:  # adopted segments are recorded again
            self.told.committed(decoded, before)
        tip, id_ = decoded.segment_id.partition, decoded.segment_id.id
        state = queries.partition_state(self._world.auditor.reference.rows, tip)
        assert state is not None
        goes = self._world.brokers.partition(tip).deleted and state.delete_state is not None
        if decoded.state is SegmentState.DELETE_SEGMENT_STARTED:
            was_finished = before is not None and (
                before.state is SegmentState.COPY_SEGMENT_FINISHED
            )
            self._check(
                not was_finished
                or state.mode is Mode.SIDECAR
                or goes
                or id_ in self._asked
                or (before is not None and self._is_passed(before, state)),
                "only_its_broker_deletes",
                f"{decoded.segment_id} is deleted, and no broker asked for it",
            )
            if before is not None and was_finished and state.claim is not None:
                self._goes(before, state.claim.incarnation.node_id)
        elif decoded.state is not SegmentState.DELETE_SEGMENT_FINISHED:
            self._check(
                (id_ in self._begun) is (state.mode is Mode.DELEGATED),
                "one_of_both_copies",
                f"{decoded.segment_id} is copied by "
                f"{'a broker' if id_ in self._begun else 'a node'} in mode {state.mode.name}",
            )

    def is_a_brokers(self, segment: Uuid) -> bool:
        """True if a broker copied or deletes it."""
        return segment in self._begun or segment in self._asked

    # ---- what the tier has

    def is_taken(self, partition: Partition, batch: Batch) -> bool:
        """True of a batch that retention or DeleteRecords took."""
        return (batch.epoch, batch.base) in self._taken.get(partition.tip, ())

    def _not_served(self, partition: Partition, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches of the leader that nothing took and the tier does not have."""
        for batch in batches:
            if self.is_needed(partition, batch):
                yield batch

    def is_needed(self, partition: Partition, batch: Batch) -> bool:
        """True of a batch of the leader that nothing took and the tier does not have."""
        leader = partition.leading
        lives = leader is not None and batch in leader.batches
        return lives and not self.is_taken(partition, batch) and not self.has(partition, batch)

    def has(self, partition: Partition, batch: Batch) -> bool:
        """True if the tier serves a batch, of which DeleteRecords may have taken the head."""
        rows, bucket = self._world.auditor.reference.rows, self._world.bucket
        found = covering(rows, partition.tip, batch.epoch, batch.last)
        row = None if found is None else read_segment(rows, found.segment)
        if row is None:
            return False
        keys = segment_keys(self._world.prefix, row.segment_id, row.start_offset)
        return batch.data in (bucket.content(keys.log) or b"")

    def missing(self, partition: Partition) -> Iterator[Batch]:
        """Records of the leader that are on no disk of it and not in the tier."""
        leader = partition.leading
        assert leader is not None
        below = (each for each in leader.batches if each.base < leader.bases[0])
        return self._not_served(partition, below)

    def uncopied(self, partition: Partition) -> Iterator[Batch]:
        """Records of the leader in sealed segments that are not in the tier."""
        leader = partition.leading
        assert leader is not None
        sealed = (
            each
            for each in leader.batches
            if leader.log_start <= each.last and each.base < leader.bases[-1]
        )
        return self._not_served(partition, sealed)


def _lacking(
    partition: Partition, row: RemoteLogSegmentMetadata, replica: Replica | None
) -> set[tuple[int, int]]:
    """Records that any leader had in a segment's range, and a replica does not have."""
    kept = () if replica is None else replica.batches
    return {
        (each.epoch, each.base)
        for log in partition.truth.values()
        for each in log
        if row.start_offset <= each.base <= row.end_offset and each not in kept
    }
