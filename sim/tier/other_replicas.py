"""Other brokers, asked for batches that the node's own broker lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_client.replica_answers import Batches, Extent, OutOfRange
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import NoAnswer

if TYPE_CHECKING:
    from sim.tier.replica import Batch, Replica
    from sim.tier.world import World


class OtherReplicas:
    """The port `rlm.copy.mending.ReplicasPort`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def replicas(self, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
        found = self._world.brokers.named((partition.topic, partition.partition))
        return NoAnswer("no such topic") if found is None else sorted(found.replicas)

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        found = self._world.brokers.named((partition.topic, partition.partition))
        if found is None or not self._world.machine(node_id).broker_up:
            return NoAnswer("it is down")
        replica = found.replicas[node_id]
        if offset == replica.end:
            return NoAnswer("it has nothing there yet")
        if offset > replica.end or offset < max(replica.bases[0], replica.log_start):
            return OutOfRange()
        there = [
            each
            for each in replica.batches
            if offset <= each.last < replica.high_watermark and each not in replica.lost
        ]
        # An answer is of one file.
        data = b"".join(
            each.data for each in there if file_of(replica, each) == file_of(replica, there[0])
        )
        return Batches(data, replica.high_watermark) if data else NoAnswer("nothing there yet")

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        found = self._world.brokers.named((partition.topic, partition.partition))
        if found is None or not self._world.machine(node_id).broker_up:
            return NoAnswer("it is down")
        replica = found.replicas[node_id]
        return Extent(max(replica.bases[0], replica.log_start), replica.end)

    async def close(self) -> None:
        """Nothing is open."""


def file_of(replica: Replica, batch: Batch) -> int:
    """The base offset of the segment that the batch is in."""
    return replica.bases[bisect_right(replica.bases, batch.base) - 1]
