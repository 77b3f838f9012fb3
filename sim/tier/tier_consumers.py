"""Consumers of what is in the tier alone, as a broker's remote log reader serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_formats import transaction_index
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import epoch_for_offset
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_formats.transaction_index import AbortedTransaction, collect
from rlmm.segment import RemoteLogSegmentMetadata
from sim.tier.plugin import FailedError, Plugin, ResourceNotFoundError, UnavailableError
from sim.tier.readers import batches_of

if TYPE_CHECKING:
    from sim.tier.partition import Partition
    from sim.tier.replica import Replica
    from sim.tier.world import World

TRANSACTION = 3
THROWN = (UnavailableError, FailedError, ResourceNotFoundError)


def short(error: Exception) -> str:
    """The call that failed, and the node's error."""
    return " ".join(str(error).split(" ")[:2])


class TierConsumers:
    """The consumers of one life of a broker; what comes is read_uncommitted ones' at once."""

    def __init__(self, world: World, node_id: int, plugin: Plugin) -> None:
        self._world = world
        self._node_id = node_id
        self._plugin = plugin
        self._transactions: dict[tuple[Uuid, int], tuple[AbortedTransaction, ...]] = {}

    async def consume(self, partition: Partition, offset: int) -> int | None:
        """Read at an offset that is in the tier alone; return the offset behind what came. None:
        nothing came.
        """
        replica, audit = partition.replicas[self._node_id], self._world.delegated.audit
        epoch, tip = epoch_for_offset(replica.epochs, offset), partition.tip
        began = partition.epoch
        if epoch is None:
            return None
        try:
            row = await self._plugin.look_up(tip, epoch, offset)
            if row is None:
                self._note(f"a consumer of {tip.topic} is told that nothing is at {offset}")
                if partition.epoch == began:
                    audit.finds_nothing(partition, replica, offset)
                return None
            await self._world.delegated.rough.calls.between_reads()
            got = batches_of(await self._plugin.fetch(row))
            got = got[next((at for at, b in enumerate(got) if b.last >= offset), len(got)) :]
            if partition.epoch == began:  # else its log may be another by now
                audit.consumed(partition, replica, offset, got)
            aborted = await self._aborted(tip, replica, got[0].base, got[-1].last) if got else []
        except THROWN as error:
            self._note(f"a consumer of {tip.topic} at {offset} is told {short(error)}")
            return None
        spans = " ".join(f"{each.base}-{each.last}@{each.epoch}" for each in got)
        self._note(f"a consumer of {tip.topic} at {offset} gets {spans or 'nothing'}")
        if partition.epoch == began:
            audit.told_aborted(partition, replica, offset, got, aborted)
        return got[-1].last + 1 if got else None

    async def _aborted(
        self, tip: TopicIdPartition, replica: Replica, first: int, last: int
    ) -> list[AbortedTransaction]:
        """collectAbortedTransactions: of the segments with an index, as the metadata names them.
        Markers may lie in later segments, or in those of the disk, where transactions have several
        batches.
        """
        found: list[AbortedTransaction] = []
        at: int | None = first
        apart = replica.has_transactions
        for epoch, start in replica.epochs:
            at = max(first, start)
            while at is not None and (at <= last or apart):
                row = await self._plugin.look_up(tip, epoch, at, with_txn_index=True)
                if row is None or (row.start_offset > last and not apart):
                    break
                touching, is_complete = collect(await self._of(replica, row), first, last + 1)
                found += touching
                if is_complete and apart:
                    return found
                at = row.end_offset + 1
        return [*found, *replica.aborted(replica.bases[0], replica.end)] if apart else found

    async def _of(
        self, replica: Replica, row: RemoteLogSegmentMetadata
    ) -> tuple[AbortedTransaction, ...]:
        """The index of a segment. The broker keeps what it once fetched for the segment's id, also
        over a later cut, which no node can change: with markers apart it asks again here.
        """
        key = row.segment_id.id, row.end_offset if replica.has_transactions else -1
        if key not in self._transactions:
            self._transactions[key] = await self._index(row)
        return self._transactions[key]

    async def _index(self, row: RemoteLogSegmentMetadata) -> tuple[AbortedTransaction, ...]:
        """Kept on disk for good, also that there is none."""
        try:
            data = await self._plugin.index(row, TRANSACTION)
        except ResourceNotFoundError:
            return ()
        return transaction_index.parse(data, source="the tier")

    def _note(self, what: str) -> None:
        self._world.note(f"broker {self._node_id}: {what}")
