"""The brokers of a cluster as a `rlm.copy.mending.ReplicasPort`, with what each has of a small
log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka_client.replica_answers import Batches, Extent, OutOfRange
from kafka_formats.batch_scan import scan
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import NoAnswer
from rlmm.records.control_records import OffsetsSkipped
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node


@dataclass(slots=True)
class Cluster:
    """Brokers by id, each with the offsets it has; None: it does not answer. `answer_bytes` at
    once; `starts` are log starts above 0, `ends` log ends below 40.
    """

    brokers: dict[int, Sequence[int] | None]
    batches: dict[int, bytes]
    answer_bytes: int = 1_000
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    damage: Callable[[int, bytes], bytes] = lambda _, data: data
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def replicas(self, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
        assert (partition.topic, partition.partition) == ("orders", 0)
        return sorted(self.brokers)

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        assert (partition.topic, partition.partition) == ("orders", 0)
        self.asked.append((node_id, offset))
        has = self.brokers[node_id]
        if has is None:
            return NoAnswer("it is down")
        if not self.starts.get(node_id, 0) <= offset <= self.ends.get(node_id, 39):
            return OutOfRange()
        data = b"".join(self.batches[each] for each in has if each >= offset)
        return Batches(self.damage(node_id, data)[: self.answer_bytes], 40)

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        assert (partition.topic, partition.partition) == ("orders", 0)
        if self.brokers[node_id] is None:
            return NoAnswer("it is down")
        return Extent(self.starts.get(node_id, 0), self.ends.get(node_id, 40))

    async def close(self) -> None:
        """Nothing is kept open."""


def all_batches(log: KafkaLog) -> dict[int, bytes]:
    return {
        batch.header.base_offset: bytes(batch.data)
        for base in (0, 10, 20, 30)
        if (log.directory / f"{base:020d}.log").exists()
        for batch in scan(log.log_bytes(base), source="test")
    }


def cluster(log: KafkaLog, **brokers: Sequence[int] | None) -> Cluster:
    """Named `b1`, `b2`, ...; made before the log is damaged."""
    return Cluster({int(name[1:]): has for name, has in brokers.items()}, all_batches(log))


async def give_up(node: Node) -> None:
    """An admin gives up all that the partition waits for."""
    (tip,) = {each.partition for each in node.remote_log.statuses()}
    damage, state = node.remote_log.damage_of(tip), node.metadata.partition_state(tip)
    assert damage is not None
    assert state is not None
    assert state.claim is not None
    assert node.remote_log.status(tip).why_not_copying is WhyNot.BLOCKED
    for first, last in damage.missing:
        await node.metadata.skip_offsets(
            OffsetsSkipped(tip, state.claim.token, first, last, "skipped by ann: no copy")
        )
    node.remote_log.try_again(tip)


def remove(log: KafkaLog, base: int) -> None:
    for file in log.directory.glob(f"{base:020d}.*"):
        file.unlink()
